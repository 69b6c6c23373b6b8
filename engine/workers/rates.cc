#include "engine/workers/rates.h"

#include <starpu.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/graph/cost.h"
#include "engine/memory/arena.h"
#include "engine/workers/gpu.h"
#include "engine/workers/workers.h"
#include "kernels/params/copy.h"
#include "kernels/params/fill.h"
#include "kernels/params/gemm.h"

namespace nn {
namespace {

std::array<Rates, STARPU_NMAXWORKERS> rates;
bool measured = false;
starpu_perfmodel model{}, group_model{};
std::mutex mutex;
std::string failure;

template <class P>
BenchmarkCall benchmark(const char* kernel, Dtype dtype, std::vector<size_t> operand_bytes,
                        const P& params) {
    BenchmarkCall out{find_kernel(kernel), dtype, std::move(operand_bytes), {}, 0, 0};
    static_assert(sizeof params <= sizeof out.params);
    std::memcpy(out.params, &params, sizeof params);
    for (size_t bytes : out.operand_bytes) out.bytes += double(bytes);
    return out;
}

// Memory of a worker's device; nullptr for 0 bytes.
std::shared_ptr<void> allocate(bool gpu, size_t bytes) {
    if (bytes == 0) return nullptr;
    void* const data = gpu ? gpu_allocate(bytes) : arena_allocate(bytes);
    if (!data) fail("no memory to measure the workers' rates");
    return {data, [=](void* block) { gpu ? gpu_free(block) : arena_free(block, bytes); }};
}

double time_on_cpu(const Kernel& kernel, const KernelCall& call, int repeats) {
    const KernelFn run = kernel.on(Device::cpu);
    run(call);
    const double start = now_seconds();
    for (int i = 0; i < repeats; ++i) run(call);
    return (now_seconds() - start) / repeats;
}

double time_call(bool gpu, const Kernel& kernel, Dtype dtype, const void* params,
                 void* const* operands, int repeats) {
    std::string error;
    const KernelCall call{operands, params, dtype, nullptr, &error};
    const double seconds = (gpu ? time_on_gpu : time_on_cpu)(kernel, call, repeats);
    if (!error.empty()) fail("%s", error.c_str());
    return std::max(seconds, 1e-9);
}

// On operands of ones, in the memory of the calling worker's device.
double run_benchmark(bool gpu, const BenchmarkCall& call, int repeats) {
    std::vector<std::shared_ptr<void>> buffers;
    std::vector<void*> operands;
    for (size_t bytes : call.operand_bytes) {
        buffers.push_back(allocate(gpu, bytes));
        operands.push_back(buffers.back().get());
        if (!bytes) continue;
        const nn_fill_params ones{int64_t(bytes / dtype_size(call.dtype)), 1};
        time_call(gpu, *find_kernel("fill"), call.dtype, &ones, &operands.back(), 1);
    }
    return time_call(gpu, *call.kernel, call.dtype, call.params, operands.data(), repeats);
}

// The sizes fill a GPU; on a CPU core the measurement takes a few milliseconds.
Rates rates_on(bool gpu) {
    const auto run = [gpu](const BenchmarkCall& call) {
        return run_benchmark(gpu, call, gpu ? 10 : 2);
    };
    const int64_t megabyte = int64_t(1) << 20;
    Rates out = gpu ? measured_rates(run, 4096, 256 * megabyte, true)
                    : measured_rates(run, 384, 16 * megabyte, false);
    out.start = gpu ? 5e-6 : 1e-6;  // about the cost of a launch, or of taking a task
    out.multiprocessors = gpu ? gpu_multiprocessors() : 0;
    return out;
}

// Measures one stream of an idle GPU; its other streams get the same rates.
void measure_gpu(void*) {
    const int device = gpu_of(starpu_worker_get_id());
    try {
        const Rates here = rates_on(true);
        for (int w = 0; w < int(starpu_worker_get_count()); ++w)
            if (gpu_of(w) == device) rates[size_t(w)] = here;
    } catch (const std::exception& e) {
        std::lock_guard lock(mutex);
        failure = e.what();
    }
}

// In microseconds, for StarPU.
double cost_of(starpu_task* task, unsigned worker, unsigned) {
    return seconds_of(*static_cast<const TaskArg*>(task->cl_arg), rates[worker]) * 1e6;
}

double cost_of_group(starpu_task* task, unsigned worker, unsigned) {
    const auto& group = *static_cast<const GroupArg*>(task->cl_arg);
    double seconds = 0;
    for (int i = 0; i < group.count; ++i) seconds += seconds_of(*group.args[i], rates[worker]);
    return seconds * 1e6;
}

bool uses_times(const std::string& scheduler) {
    return scheduler.rfind("dm", 0) == 0 || scheduler.find("heft") != std::string::npos;
}

}  // namespace

BenchmarkCall benchmark_product(int64_t size, Dtype dtype, bool tf32) {
    nn_gemm_params p{};
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = size;
    p.batch = 1, p.alpha = 1, p.tf32 = tf32;
    const size_t bytes = size_t(size * size) * dtype_size(dtype);
    BenchmarkCall out = benchmark("gemm", dtype, {bytes, bytes, bytes, 0, 0}, p);
    out.flops = 2.0 * double(size) * double(size) * double(size);
    return out;
}

Rates measured_rates(const BenchmarkRunner& run, int64_t product_size, int64_t copy_bytes,
                     bool tf32) {
    bool good = true;
    const auto seconds_of_call = [&](const BenchmarkCall& call) {
        const double seconds = run(call);
        good = good && seconds > 0;
        return seconds;
    };
    constexpr int64_t most_f64 = 2048;  // GPUs for graphics are slow
    const auto product_rate = [&](Dtype dtype, bool use_tf32) {
        const int64_t size = dtype == Dtype::f64 ? std::min(product_size, most_f64) : product_size;
        const BenchmarkCall call = benchmark_product(size, dtype, use_tf32);
        return call.flops / seconds_of_call(call);
    };
    Rates out;
    out.f32 = product_rate(Dtype::f32, false);
    out.f64 = product_rate(Dtype::f64, false);
    out.bf16 = product_rate(Dtype::bf16, false);
    out.tf32 = tf32 ? product_rate(Dtype::f32, true) : out.f32;
    nn_copy_params p{};
    p.ndim = 1, p.extent[0] = copy_bytes / 4, p.src_stride[0] = p.dst_stride[0] = 1;
    const std::vector<size_t> operands(2, size_t(copy_bytes));
    const BenchmarkCall copy = benchmark("copy", Dtype::f32, operands, p);
    out.bytes = copy.bytes / seconds_of_call(copy);
    return good ? out : Rates{};
}

void start_rates() {
    measured = starpu_cuda_worker_get_count() > 0 ||
               uses_times(starpu_sched_get_sched_policy()->policy_name);
    rates.fill({});
    if (!measured) return;
    model.worker_cost_function = cost_of, group_model.worker_cost_function = cost_of_group;
    for (starpu_perfmodel* one : {&model, &group_model}) one->type = STARPU_PER_WORKER;
    model.symbol = "nnlua", group_model.symbol = "nnlua_groups";
    const Rates cpu = rates_on(false);  // on this thread: all cores count as equal
    for (int w = 0; w < int(starpu_worker_get_count()); ++w)
        if (gpu_of(w) < 0) rates[size_t(w)] = cpu;
    failure.clear();
    const std::vector<int> first = first_streams();
    std::vector<unsigned> workers(first.begin(), first.end());
    if (!workers.empty())
        starpu_execute_on_specific_workers(measure_gpu, nullptr, unsigned(workers.size()),
                                           workers.data(), "rates");
    if (!failure.empty()) fail("measuring the workers' rates: %s", failure.c_str());
}

Rates rates_of(int worker) { return rates[size_t(worker)]; }

starpu_perfmodel* perf_model() { return measured ? &model : nullptr; }
starpu_perfmodel* perf_model_of_groups() { return measured ? &group_model : nullptr; }

}  // namespace nn
