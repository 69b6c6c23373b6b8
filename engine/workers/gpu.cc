#include "engine/workers/gpu.h"

#if defined(NN_CUDA)
#include <cuda_runtime_api.h>
#include <starpu.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/graph/task.h"
#include "engine/memory/arena.h"
#include "engine/profile/records.h"
#include "engine/workers/gpu_graph.h"
#include "engine/workers/watchdog.h"
#include "engine/workers/workers.h"
#include "kernels/cuda/device.h"

namespace nn {
namespace {

// The workspace is for cuBLASLt (32 MB on Hopper), partial sums, and cuDNN's attention, which
// computes as many sequences at once as fit. It is 1/256 of the GPU's memory, within these bounds.
constexpr size_t min_workspace = size_t(64) << 20, max_workspace = size_t(256) << 20;
// More than StarPU keeps in flight on a worker (STARPU_CUDA_PIPELINE, at most 4).
constexpr int launches_per_worker = watched_tasks - 1;

struct Launch {
    Fault* own_faults;  // of each kernel, in memory that the device sees
    Fault* faults;      // these, or those of the graph
    cudaEvent_t begin, end;
    std::array<const TaskArg*, max_group> args;
    int kernels;
    GpuTaskFinish finish;
    TaskRecord* record;  // null if it is not timed
    bool busy;
    int watched;  // its number for the watchdog
};
struct Worker {
    Gpu gpu{};
    Fault* faults = nullptr;
    cudaEvent_t anchor = nullptr;  // an event with a known time on the host
    double anchor_time = 0;
    std::array<Launch, launches_per_worker> launches{};
    Launch* current = nullptr;      // whose kernels are being launched
    std::vector<KernelCall> calls;  // of the kernels that are launched at once
};

std::array<Worker, STARPU_NMAXWORKERS> workers;
std::mutex error_mutex;
std::string start_error;

Worker& this_worker() { return workers[size_t(starpu_worker_get_id())]; }

// Calls f on every GPU worker, with its device current. f must not throw.
void on_all_workers(void (*f)(void*)) {
    if (starpu_cuda_worker_get_count() > 0) starpu_execute_on_each_worker(f, nullptr, STARPU_CUDA);
}

void need(cudaError_t status, const char* what) {
    if (status != cudaSuccess) fail("%s failed: %s", what, cudaGetErrorString(status));
}

void prepare(Worker& worker) {
    need(cudaGetDevice(&worker.gpu.device), "cudaGetDevice");
    size_t free = 0, total = 0;
    need(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    worker.gpu.workspace_bytes = std::clamp(total / 256, min_workspace, max_workspace);
    need(cudaMalloc(&worker.gpu.workspace, worker.gpu.workspace_bytes),
         "cudaMalloc of the workspace");
    void* faults = nullptr;
    need(cudaHostAlloc(&faults, launches_per_worker * max_group * sizeof(Fault),
                       cudaHostAllocDefault),
         "cudaHostAlloc");
    worker.faults = static_cast<Fault*>(faults);
    std::fill_n(worker.faults, launches_per_worker * max_group, Fault{});
    for (int i = 0; i < launches_per_worker; ++i) {
        Launch& launch = worker.launches[size_t(i)];
        launch.own_faults = worker.faults + i * max_group, launch.watched = 1 + i;
        for (cudaEvent_t* event : {&launch.begin, &launch.end})
            need(cudaEventCreate(event), "cudaEventCreate");
    }
    need(cudaEventCreate(&worker.anchor), "cudaEventCreate");
    worker.gpu.blas = cuda::open_blas();
    worker.gpu.cudnn = cuda::open_cudnn();
}

void start_worker(void*) {
    try {
        prepare(this_worker());
    } catch (const std::exception& e) {
        std::lock_guard lock(error_mutex);
        start_error = worker_name(starpu_worker_get_id()) + ": " + e.what();
    }
}

void stop_worker(void*) {
    Worker& worker = this_worker();
    cuda::close_cudnn(worker.gpu.cudnn);
    cuda::close_blas(worker.gpu.blas);
    for (Launch& launch : worker.launches)
        for (cudaEvent_t event : {launch.begin, launch.end})
            if (event) cudaEventDestroy(event);
    if (worker.anchor) cudaEventDestroy(worker.anchor);
    cudaFreeHost(worker.faults);
    cudaFree(worker.gpu.workspace);
    worker = {};
}

// "" means that the kernel has found no wrong data, so a report is never empty.
std::string message_of(const Fault& fault) {
    if (!fault.failed) return "";
    const auto value = static_cast<long long>(fault.value);
    return fault.format[0] ? format(fault.format, value)
                           : format("the kernel has found the wrong value %lld", value);
}

void set_anchor(void*) {
    Worker& worker = this_worker();
    cudaEventRecord(worker.anchor, starpu_cuda_get_local_stream());
    cudaEventSynchronize(worker.anchor);
    worker.anchor_time = now_us();
}

// Converts the device's times of a task to the host's clock. Times between events are floats, so
// the anchor is replaced after a second. The host's times bound the result, so that no task seems
// to end after its successors begin.
void set_times(Worker& worker, Launch& launch) {
    const double now = now_us();
    TaskRecord& r = *launch.record;
    float to_begin = 0, length = 0;
    r.start = r.launched, r.end = now;
    if (cudaEventElapsedTime(&to_begin, worker.anchor, launch.begin) != cudaSuccess ||
        cudaEventElapsedTime(&length, launch.begin, launch.end) != cudaSuccess)
        return;
    const double begin = worker.anchor_time + double(to_begin) * 1e3;
    r.start = std::clamp(begin, r.launched, now);
    r.end = std::clamp(begin + double(length) * 1e3, r.start, now);
    if (to_begin < 1000) return;
    std::swap(worker.anchor, launch.begin);
    worker.anchor_time = begin;
}

// StarPU calls this on the worker when the device has finished a task, before its dependents may
// start.
void task_over(void* context) {
    Launch& launch = *static_cast<Launch*>(context);
    delay(0.2);
    if (launch.record) set_times(this_worker(), launch);
    int reported = 0;  // a kernel that found wrong data, else the last one
    while (reported < launch.kernels - 1 && !launch.faults[reported].failed) ++reported;
    launch.finish(*launch.args[size_t(reported)], message_of(launch.faults[reported]));
    watch_ends(launch.watched);
    launch.busy = false;
}

TaskRecord* start_of_gpu_task() {
    TaskRecord* record = profiling() ? current_record() : nullptr;
    if (!record) return nullptr;
    record->worker = int16_t(starpu_worker_get_id());
    record->launched = now_us();
    return record;
}

// A thread's means to copy.
struct CopyStream {
    cudaStream_t stream = nullptr;
    cudaEvent_t done = nullptr;
    ~CopyStream() {
        if (done) cudaEventDestroy(done);
        if (stream) cudaStreamDestroy(stream);
    }
    cudaError_t open() {
        if (done) return cudaSuccess;
        const cudaError_t status =
            stream ? cudaSuccess : cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        if (status != cudaSuccess) return status;
        return cudaEventCreateWithFlags(&done, cudaEventBlockingSync | cudaEventDisableTiming);
    }
};

Launch* free_launch(Worker& worker) {
    for (Launch& launch : worker.launches)
        if (!launch.busy) return &launch;
    return nullptr;
}

// The next kernel of a task; returns where it reports wrong data. The text for it stays: a kernel
// writes it when it is launched or recorded, and not when its graph starts again.
Fault& note_kernel(Launch& launch, const TaskArg* arg) {
    Fault& fault = launch.faults[launch.kernels];
    fault.failed = 0;
    launch.args[size_t(launch.kernels++)] = arg;
    return fault;
}

// As before the first kernel.
void use_own_faults(Launch& launch) { launch.faults = launch.own_faults, launch.kernels = 0; }

}  // namespace

bool pin_on_host(void* memory, size_t bytes) {
    return cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess;
}
void unpin_on_host(void* memory) { cudaHostUnregister(memory); }

void pin_host_memory() { set_pinning({pin_on_host, unpin_on_host}); }

void start_gpus() {
    start_error.clear();
    on_all_workers(start_worker);
    if (!start_error.empty()) fail("%s", start_error.c_str());
}

void stop_gpus() {
    drop_gpu_graphs();
    on_all_workers(stop_worker);
}
void anchor_gpu_times() { on_all_workers(set_anchor); }

void* gpu_allocate(size_t bytes, int gpu) {
    void* memory = nullptr;
    if (gpu >= 0 && cudaSetDevice(gpu) != cudaSuccess) return nullptr;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void gpu_free(void* memory) { cudaFree(memory); }

int gpu_multiprocessors() {
    int count = 0;
    need(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, this_worker().gpu.device),
         "cudaDeviceGetAttribute");
    return count;
}

double time_on_gpu(const Kernel& kernel, const KernelCall& call, int repeats) {
    Worker& worker = this_worker();
    const Launch& launch = worker.launches[0];
    const cudaStream_t stream = starpu_cuda_get_local_stream();
    KernelCall here = call;
    here.stream = stream, here.gpu = &worker.gpu, here.fault = launch.own_faults;
    for (int i = -1; i < repeats; ++i) {
        if (i == 0) need(cudaEventRecord(launch.begin, stream), "cudaEventRecord");
        kernel.on(Device::cuda)(here);
    }
    need(cudaEventRecord(launch.end, stream), "cudaEventRecord");
    need(cudaEventSynchronize(launch.end), "cudaEventSynchronize");
    float milliseconds = 0;
    need(cudaEventElapsedTime(&milliseconds, launch.begin, launch.end), "cudaEventElapsedTime");
    return double(milliseconds) * 1e-3 / repeats;
}

std::string copy_beside_kernels(int gpu, void* to, const void* from, size_t bytes) {
    thread_local CopyStream own;
    cudaError_t status = cudaSetDevice(gpu);
    if (status == cudaSuccess) status = own.open();
    if (status == cudaSuccess)
        status = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, own.stream);
    if (status == cudaSuccess) status = cudaEventRecord(own.done, own.stream);
    if (status == cudaSuccess) status = cudaEventSynchronize(own.done);
    return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

void poison_on_gpu(void* data, size_t bytes) {
    need(cudaMemsetAsync(data, 0xFF, bytes, starpu_cuda_get_local_stream()), "cudaMemsetAsync");
}

bool begin_on_gpu(const TaskArg& first, int kernels, GpuTaskFinish finish) {
    Worker& worker = this_worker();
    Launch* const launch = free_launch(worker);
    if (!launch || kernels > max_group) return false;
    launch->finish = finish;
    use_own_faults(*launch);
    launch->args[0] = &first;
    launch->record = start_of_gpu_task();
    if (launch->record &&
        cudaEventRecord(launch->begin, starpu_cuda_get_local_stream()) != cudaSuccess)
        launch->record = nullptr;
    worker.current = launch;
    return true;
}

std::string start_on_gpu(const TaskArg* const* args, int count, const Operands* operands) {
    Worker& worker = this_worker();
    Launch& launch = *worker.current;
    std::string error;
    worker.calls.clear();
    for (int i = 0; i < count; ++i) {
        Fault& fault = note_kernel(launch, args[i]);
        worker.calls.push_back({operands[i].data(), args[i]->params, args[i]->dtype,
                                starpu_cuda_get_local_stream(), &error, &worker.gpu, &fault});
    }
    const Kernel& kernel = *args[0]->kernel;
    if (count == 1)
        kernel.on(Device::cuda)(worker.calls[0]);
    else
        kernel.many_on(Device::cuda)(worker.calls.data(), count);
    return error;
}

GraphUse begin_graph_on_gpu(GpuGraph& graph, const TaskArg* const* args, int count,
                            const Operands* operands) {
    Launch& launch = *this_worker().current;
    const cudaStream_t stream = starpu_cuda_get_local_stream();
    if (!graph.prepare(args, count, operands)) return GraphUse::none;
    launch.faults = graph.faults();
    if (graph.is_up_to_date()) {
        for (int i = 0; i < count; ++i) note_kernel(launch, args[i]);
        if (graph.launch(stream)) return GraphUse::launched;
    } else if (graph.begin_recording(stream)) {
        return GraphUse::recording;
    }
    use_own_faults(launch);
    return GraphUse::none;
}

bool end_graph_on_gpu(GpuGraph& graph, const std::string& error_of_kernels) {
    const cudaStream_t stream = starpu_cuda_get_local_stream();
    if (graph.end_recording(stream, error_of_kernels) && graph.launch(stream)) return true;
    use_own_faults(*this_worker().current);
    return false;
}

void end_on_gpu() {
    Worker& worker = this_worker();
    Launch& launch = *worker.current;
    if (launch.record && cudaEventRecord(launch.end, starpu_cuda_get_local_stream()) != cudaSuccess)
        launch.record = nullptr;
    launch.busy = true;
    watch_begins(*launch.args[0], launch.watched);
    starpu_task* task = starpu_task_get_current();
    task->epilogue_callback_func = task_over;
    task->epilogue_callback_arg = &launch;
}

}  // namespace nn

// StarPU calls this function of its own if a call of CUDA fails. Its version prints a backtrace and
// aborts; in the program, this version takes its place.
extern "C" void starpu_cuda_report_error(const char* function, const char*, int,
                                         cudaError_t status) {
    nn::lose_gpu(nn::format("%s (CUDA error %d, found by StarPU in %s)", cudaGetErrorString(status),
                            int(status), function));
}

#else

namespace nn {
void pin_host_memory() {}
bool pin_on_host(void*, size_t) { return false; }
void unpin_on_host(void*) {}
void start_gpus() {}
void stop_gpus() {}
void anchor_gpu_times() {}
void* gpu_allocate(size_t, int) { return nullptr; }
void gpu_free(void*) {}
int gpu_multiprocessors() { return 0; }
double time_on_gpu(const Kernel&, const KernelCall&, int) { return 0; }
void poison_on_gpu(void*, size_t) {}
std::string copy_beside_kernels(int, void*, const void*, size_t) {
    return "this build has no CUDA";
}
bool begin_on_gpu(const TaskArg&, int, GpuTaskFinish) { return false; }
std::string start_on_gpu(const TaskArg* const*, int, const Operands*) { return ""; }
void end_on_gpu() {}
GraphUse begin_graph_on_gpu(GpuGraph&, const TaskArg* const*, int, const Operands*) {
    return GraphUse::none;
}
bool end_graph_on_gpu(GpuGraph&, const std::string&) { return false; }
}  // namespace nn

#endif
