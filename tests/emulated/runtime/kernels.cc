// Kernels on pretended GPUs: the implementation of every kernel for a new target, which computes on
// the stream what the CPU implementation computes. So results are bitwise those of a CPU, and all
// that is between a task and its kernel is the program's own. Nothing in the program knows of this.
#include <starpu.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/implement.h"
#include "kernels/registry.h"
#include "tests/emulated/runtime/device.h"

namespace emulated {
namespace {

constexpr const char* names[] = {
#define NN_KERNEL(name, bound, operands, params) #name,
#include "kernels/kernels.inc"
};

// A call with its own copy of what the caller frees when the launch returns.
struct Launch {
    const nn::Kernel* kernel;
    std::vector<void*> operands;
    std::vector<char> params;
    nn::Dtype dtype;
    nn::Fault* fault;
    int device;
    bool is_measured;
    std::string text;  // for wrong data, as the launch has written it to `fault`

    bool has_own_operands() const {
        for (void* operand : operands)
            if (operand && device_of(operand, 1) != device) return false;
        return true;
    }
    // Only now the text is known that a launch on a GPU writes. So it replaces what this launch has
    // written, and nothing else: a graph that starts again finds the text as the host has left it.
    void report(const std::string& error) {
        if (text == fault->format) {
            text.clear();
            for (char c : error) text += c == '%' ? "%%" : std::string(1, c);
            text.resize(std::min(text.size(), sizeof fault->format - 1));
            std::strcpy(fault->format, text.c_str());
        }
        fault->failed = 1;
    }
    void compute() {
        std::string error;
        const nn::KernelCall call{operands.data(), params.data(), dtype, nullptr, &error};
        kernel->on(nn::Device::cpu)(call);
        if (!error.empty()) report(error);
    }
    void run() {
        count_kernel(device);
        if (is_measured)
            std::this_thread::sleep_for(
                std::chrono::duration<double, std::micro>(settings().measured_us));
        else if (kernel_fails())
            set_error(device, settings().failure);
        else if (!has_own_operands())
            set_error(device, cudaErrorIllegalAddress);
        else if (!settings().instant)
            compute();
    }
};

// Whether the engine measures a rate. Its own tasks have operands.
bool measures() {
    const starpu_task* const task = starpu_task_get_current();
    return !task || task->nbuffers == 0;
}

void start(const nn::Kernel& kernel, const nn::KernelCall& call) {
    const char* const params = static_cast<const char*>(call.params);
    const auto launch =
        std::make_shared<Launch>(Launch{&kernel,
                                        {call.operands, call.operands + kernel.operands.size()},
                                        {params, params + kernel.params_size},
                                        call.dtype,
                                        call.fault,
                                        call.gpu->device,
                                        measures(),
                                        kernel.name + " has found wrong data"});
    std::strcpy(call.fault->format, launch->text.c_str());
    cudaError_t status = start_kernel(static_cast<cudaStream_t>(call.stream), kernel.name.c_str(),
                                      [launch] { launch->run(); });
    if (nn::take_failure()) status = cudaErrorLaunchFailure;
    if (status != cudaSuccess)
        call.fail("CUDA device %d: the launch failed: %s", call.gpu->device,
                  cudaGetErrorString(status));
}

// One function per kernel, since a call does not name its kernel.
template <size_t i> void launch_kernel(const nn::KernelCall& call) {
    static const nn::Kernel& kernel = *nn::find_kernel(names[i]);
    start(kernel, call);
}

// The program may ask for calls of any kernel at once if they do not depend on each other. They run
// in the opposite order, which then changes nothing.
template <size_t i> void launch_many(const nn::KernelCall* calls, int count) {
    while (count-- > 0) launch_kernel<i>(calls[count]);
}

template <size_t... i> void implement_all(std::index_sequence<i...>) {
    constexpr nn::KernelFn functions[] = {launch_kernel<i>...};
    constexpr nn::KernelsFn of_many[] = {launch_many<i>...};
    std::string list, list_of_many;
    for (const char* name : names) {
        const std::string comma = list.empty() ? "" : ", ";
        list += comma + name, list_of_many += comma + "many_" + name;
    }
    nn::ImplementationRegistrar("pretended", list.c_str(), functions);
    nn::ManyRegistrar("pretended", list_of_many.c_str(), of_many);
}

// Before the program begins. The last target of a device is the one that it uses.
[[maybe_unused]] const bool implemented = [] {
    nn::add_target({"pretended", nn::Device::cuda, [] { return true; }});
    implement_all(std::make_index_sequence<std::size(names)>());
    return true;
}();

}  // namespace
}  // namespace emulated
