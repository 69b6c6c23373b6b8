#include "engine/costs.h"

#include <starpu.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include "engine/error.h"
#include "engine/gpu.h"
#include "engine/memory.h"
#include "engine/runtime.h"

namespace nn {
namespace {

std::array<Rates, STARPU_NMAXWORKERS> rates;
bool measured = false;
std::mutex mutex;
std::string failure;

// What is measured on a GPU fills it; on a CPU core it is over in some milliseconds.
struct Sizes {
    int64_t side;   // of square matrices
    int64_t bytes;  // of a copy
    int repeats;
};
constexpr Sizes cpu_sizes = {384, int64_t(16) << 20, 2}, gpu_sizes = {2048, int64_t(256) << 20, 10};

// Memory of a worker's device.
class Buffer {
public:
    Buffer(bool gpu, size_t bytes)
        : gpu_(gpu), bytes_(bytes), data_(gpu ? gpu_allocate(bytes) : arena_allocate(bytes)) {
        if (!data_) fail("no memory to measure how fast workers are");
    }
    ~Buffer() { gpu_ ? gpu_free(data_) : arena_free(data_, bytes_); }
    Buffer(const Buffer&) = delete;
    void* data() const { return data_; }

private:
    const bool gpu_;
    const size_t bytes_;
    void* const data_;
};

// Seconds of one call, after one that is not counted.
template <class P>
double time_of(bool gpu, const char* name, Dtype dtype, const P& params,
               std::initializer_list<void*> operands, int repeats) {
    const Kernel* kernel = find_kernel(name);
    std::string error;
    const KernelCall call{operands.begin(), &params, dtype, nullptr, &error};
    double seconds = 0;
    if (gpu) {
        seconds = time_on_gpu(*kernel, call, repeats);
    } else {
        kernel->on(Device::cpu)(call);
        const double start = starpu_timing_now();
        for (int i = 0; i < repeats; ++i) kernel->on(Device::cpu)(call);
        seconds = (starpu_timing_now() - start) * 1e-6 / repeats;
    }
    if (!error.empty()) fail("%s", error.c_str());
    return std::max(seconds, 1e-9);
}

double product_rate(bool gpu, const Sizes& sizes, Dtype dtype, bool tf32) {
    const int64_t n = sizes.side;
    const size_t bytes = size_t(n * n) * dtype_size(dtype);
    const Buffer a(gpu, bytes), b(gpu, bytes), c(gpu, bytes);
    nn_fill_params ones{n * n, 1};
    for (const Buffer* x : {&a, &b}) time_of(gpu, "fill", dtype, ones, {x->data()}, 1);
    nn_gemm_params p{};
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = n;
    p.batch = 1, p.alpha = 1, p.tf32 = tf32;
    const double seconds = time_of(gpu, "gemm", dtype, p,
                                   {c.data(), a.data(), b.data(), nullptr, nullptr}, sizes.repeats);
    return 2.0 * double(n) * double(n) * double(n) / seconds;
}

double copy_rate(bool gpu, const Sizes& sizes) {
    const Buffer from(gpu, size_t(sizes.bytes)), to(gpu, size_t(sizes.bytes));
    nn_copy_params p{};
    p.ndim = 1, p.extent[0] = sizes.bytes / 4, p.src_stride[0] = p.dst_stride[0] = 1;
    time_of(gpu, "fill", Dtype::f32, nn_fill_params{sizes.bytes / 4, 1}, {from.data()}, 1);
    return 2.0 * double(sizes.bytes) /
           time_of(gpu, "copy", Dtype::f32, p, {to.data(), from.data()}, sizes.repeats);
}

Rates measured_rates(bool gpu) {
    const Sizes& sizes = gpu ? gpu_sizes : cpu_sizes;
    Rates r;
    r.f32 = product_rate(gpu, sizes, Dtype::f32, false);
    r.f64 = product_rate(gpu, sizes, Dtype::f64, false);
    r.bf16 = product_rate(gpu, sizes, Dtype::bf16, false);
    r.tf32 = gpu ? product_rate(gpu, sizes, Dtype::f32, true) : r.f32;
    r.bytes = copy_rate(gpu, sizes);
    r.start = gpu ? 5e-6 : 1e-6;  // about what a launch, or taking a task, costs
    return r;
}

// On one stream of a GPU, while nothing else runs there; its others are taken to be as fast.
void measure_gpu(void*) {
    const int device = starpu_worker_get_devid(starpu_worker_get_id());
    try {
        const Rates measured_here = measured_rates(true);
        for (int w = 0; w < int(starpu_worker_get_count()); ++w)
            if (starpu_worker_get_type(w) == STARPU_CUDA_WORKER &&
                starpu_worker_get_devid(w) == device)
                rates[size_t(w)] = measured_here;
    } catch (const std::exception& e) {
        std::lock_guard lock(mutex);
        failure = e.what();
    }
}

void measure_gpus() {
    const std::vector<int> first = first_streams();
    std::vector<unsigned> workers(first.begin(), first.end());
    if (!workers.empty())
        starpu_execute_on_specific_workers(measure_gpu, nullptr, unsigned(workers.size()),
                                           workers.data(), "rates");
}

// In microseconds, as StarPU wants it.
double cost_of(starpu_task* task, unsigned worker, unsigned) {
    return seconds_of(*static_cast<const TaskArg*>(task->cl_arg), rates[worker]) * 1e6;
}

bool asks_for_times(const std::string& scheduler) {
    return scheduler.rfind("dm", 0) == 0 || scheduler.find("heft") != std::string::npos;
}

}  // namespace

double seconds_of(const TaskArg& arg, const Rates& r) {
    double rate = arg.dtype == Dtype::f64 ? r.f64 : arg.dtype == Dtype::bf16 ? r.bf16 : r.f32;
    if (arg.dtype == Dtype::f32 && arg.kernel->allows_tf32(arg.params)) rate = r.tf32;
    return r.start + std::max(double(arg.flops) / rate, double(arg.bytes) / r.bytes);
}

void start_costs() {
    measured = starpu_cuda_worker_get_count() > 0 ||
               asks_for_times(starpu_sched_get_sched_policy()->policy_name);
    rates.fill({});
    if (!measured) return;
    const Rates cpu = measured_rates(false);  // on this thread: all cores are taken as equal
    for (int w = 0; w < int(starpu_worker_get_count()); ++w)
        if (starpu_worker_get_type(w) == STARPU_CPU_WORKER) rates[size_t(w)] = cpu;
    failure.clear();
    measure_gpus();
    if (!failure.empty()) fail("measuring the workers' rates: %s", failure.c_str());
}

Rates rates_of(int worker) { return rates[size_t(worker)]; }

starpu_perfmodel* cost_model() {
    static starpu_perfmodel model = [] {
        starpu_perfmodel made{};
        made.type = STARPU_PER_WORKER;
        made.symbol = "nnlua";
        made.worker_cost_function = cost_of;
        return made;
    }();
    return measured ? &model : nullptr;
}

}  // namespace nn
