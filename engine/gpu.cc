#include "engine/gpu.h"

#if defined(NN_CUDA)
#include <cuda_runtime_api.h>
#include <starpu.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "engine/error.h"
#include "engine/memory.h"
#include "engine/profile.h"
#include "engine/runtime.h"
#include "engine/watchdog.h"
#include "kernels/cuda/device.h"

namespace nn {
namespace {

// Room for cuBLASLt (32 MB on Hopper), the parts of sums, and cuDNN's attention, which takes as
// many sequences at once as fit: a 256th of the GPU's memory, within these.
constexpr size_t least_workspace = size_t(64) << 20, most_workspace = size_t(256) << 20;
// More than StarPU keeps under way on a worker (STARPU_CUDA_PIPELINE, at most 4).
constexpr int slots_per_worker = watched_places - 1;

struct Slot {
    Fault* fault;  // in memory that the device sees
    cudaEvent_t begin, end;
    const TaskArg* arg;
    GpuTaskFinish finish;
    TaskRecord* record;  // null where it is not timed
    bool busy;
    int place;  // of the watchdog
};
struct Worker {
    Gpu gpu{};
    Fault* faults = nullptr;
    cudaEvent_t anchor = nullptr;  // an event whose time on the host is known
    double anchor_time = 0;
    std::array<Slot, slots_per_worker> slots{};
};

std::array<Worker, STARPU_NMAXWORKERS> workers;
std::mutex error_mutex;
std::string start_error;

void need(cudaError_t status, const char* what) {
    if (status != cudaSuccess) fail("%s failed: %s", what, cudaGetErrorString(status));
}

void prepare(Worker& worker) {
    need(cudaGetDevice(&worker.gpu.device), "cudaGetDevice");
    size_t free = 0, total = 0;
    need(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    worker.gpu.workspace_bytes = std::clamp(total / 256, least_workspace, most_workspace);
    need(cudaMalloc(&worker.gpu.workspace, worker.gpu.workspace_bytes),
         "cudaMalloc of the workspace");
    void* faults = nullptr;
    need(cudaHostAlloc(&faults, slots_per_worker * sizeof(Fault), cudaHostAllocDefault),
         "cudaHostAlloc");
    worker.faults = static_cast<Fault*>(faults);
    for (int i = 0; i < slots_per_worker; ++i) {
        worker.slots[size_t(i)].fault = worker.faults + i;
        worker.slots[size_t(i)].place = 1 + i;
        need(cudaEventCreate(&worker.slots[size_t(i)].begin), "cudaEventCreate");
        need(cudaEventCreate(&worker.slots[size_t(i)].end), "cudaEventCreate");
    }
    need(cudaEventCreate(&worker.anchor), "cudaEventCreate");
    worker.gpu.blas = cuda::open_blas();
    worker.gpu.cudnn = cuda::open_cudnn();
}

// On every GPU worker, with its device current. Nothing may be thrown into StarPU.
void start_worker(void*) {
    const int id = starpu_worker_get_id();
    try {
        prepare(workers[size_t(id)]);
    } catch (const std::exception& e) {
        std::lock_guard lock(error_mutex);
        start_error = gpu_name(id) + ": " + e.what();
    }
}

void stop_worker(void*) {
    Worker& worker = workers[size_t(starpu_worker_get_id())];
    cuda::close_cudnn(worker.gpu.cudnn);
    cuda::close_blas(worker.gpu.blas);
    for (Slot& slot : worker.slots)
        for (cudaEvent_t event : {slot.begin, slot.end})
            if (event) cudaEventDestroy(event);
    if (worker.anchor) cudaEventDestroy(worker.anchor);
    cudaFreeHost(worker.faults);
    cudaFree(worker.gpu.workspace);
    worker = {};
}

std::string message_of(const Fault& fault) {
    if (!fault.failed) return "";
    char text[256];
    std::snprintf(text, sizeof text, fault.format, static_cast<long long>(fault.value));
    return text;
}

void set_anchor(void*) {
    Worker& worker = workers[size_t(starpu_worker_get_id())];
    cudaEventRecord(worker.anchor, starpu_cuda_get_local_stream());
    cudaEventSynchronize(worker.anchor);
    worker.anchor_time = profile_now();
}

// The device's times of a task on the host's clock. Times between events are floats: after a second
// the anchor moves on. What the host saw bounds them, so that no task seems to end after those that
// waited for it have begun.
void set_times(Worker& worker, Slot& slot) {
    const double now = profile_now();
    TaskRecord& r = *slot.record;
    float to_begin = 0, length = 0;
    r.start = r.launched, r.end = now;
    if (cudaEventElapsedTime(&to_begin, worker.anchor, slot.begin) != cudaSuccess ||
        cudaEventElapsedTime(&length, slot.begin, slot.end) != cudaSuccess)
        return;
    const double begin = worker.anchor_time + double(to_begin) * 1e3;
    r.start = std::clamp(begin, r.launched, now);
    r.end = std::clamp(begin + double(length) * 1e3, r.start, now);
    if (to_begin < 1000) return;
    std::swap(worker.anchor, slot.begin);
    worker.anchor_time = begin;
}

// StarPU calls this on the worker when the device is done with a task, before tasks that depend on
// it may start.
void task_over(void* context) {
    Slot& slot = *static_cast<Slot*>(context);
    if (slot.record) set_times(workers[size_t(starpu_worker_get_id())], slot);
    slot.finish(*slot.arg, message_of(*slot.fault));
    watch_ends(slot.place);
    slot.busy = false;
}

TaskRecord* start_of_gpu_task() {
    TaskRecord* record = profiling() ? current_record() : nullptr;
    if (!record) return nullptr;
    record->worker = int16_t(starpu_worker_get_id());
    record->launched = profile_now();
    return record;
}

Slot* free_slot(Worker& worker) {
    for (Slot& slot : worker.slots)
        if (!slot.busy) return &slot;
    return nullptr;
}

}  // namespace

void pin_host_memory() {
    set_pinning({[](void* block, size_t bytes) {
                     return cudaHostRegister(block, bytes, cudaHostRegisterPortable) == cudaSuccess;
                 },
                 [](void* block) { cudaHostUnregister(block); }});
}

void start_gpus() {
    if (starpu_cuda_worker_get_count() == 0) return;
    start_error.clear();
    starpu_execute_on_each_worker(start_worker, nullptr, STARPU_CUDA);
    if (!start_error.empty()) fail("%s", start_error.c_str());
}

void stop_gpus() {
    if (starpu_cuda_worker_get_count() == 0) return;
    starpu_execute_on_each_worker(stop_worker, nullptr, STARPU_CUDA);
}

void* gpu_allocate(size_t bytes) {
    void* memory = nullptr;
    return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void gpu_free(void* memory) { cudaFree(memory); }

double time_on_gpu(const Kernel& kernel, const KernelCall& call, int repeats) {
    Worker& worker = workers[size_t(starpu_worker_get_id())];
    const Slot& slot = worker.slots[0];
    const cudaStream_t stream = starpu_cuda_get_local_stream();
    KernelCall here = call;
    here.stream = stream, here.gpu = &worker.gpu, here.fault = slot.fault;
    for (int i = -1; i < repeats; ++i) {
        if (i == 0) need(cudaEventRecord(slot.begin, stream), "cudaEventRecord");
        kernel.on(Device::cuda)(here);
    }
    need(cudaEventRecord(slot.end, stream), "cudaEventRecord");
    need(cudaEventSynchronize(slot.end), "cudaEventSynchronize");
    float milliseconds = 0;
    need(cudaEventElapsedTime(&milliseconds, slot.begin, slot.end), "cudaEventElapsedTime");
    return double(milliseconds) * 1e-3 / repeats;
}

void anchor_gpu_times() {
    if (starpu_cuda_worker_get_count() == 0) return;
    starpu_execute_on_each_worker(set_anchor, nullptr, STARPU_CUDA);
}

void poison_on_gpu(void* data, size_t bytes) {
    need(cudaMemsetAsync(data, 0xFF, bytes, starpu_cuda_get_local_stream()), "cudaMemsetAsync");
}

std::string run_on_gpu(const TaskArg& arg, void* const* operands, GpuTaskFinish finish) {
    Worker& worker = workers[size_t(starpu_worker_get_id())];
    const cudaStream_t stream = starpu_cuda_get_local_stream();
    Slot* slot = free_slot(worker);
    if (!slot)
        return format("more than %d tasks are under way on this GPU worker", slots_per_worker);
    *slot->fault = Fault{};
    slot->arg = &arg, slot->finish = finish;
    slot->record = start_of_gpu_task();
    std::string error;
    if (slot->record && cudaEventRecord(slot->begin, stream) != cudaSuccess) slot->record = nullptr;
    arg.kernel->on(Device::cuda)(
        KernelCall{operands, arg.params, arg.dtype, stream, &error, &worker.gpu, slot->fault});
    if (slot->record && cudaEventRecord(slot->end, stream) != cudaSuccess) slot->record = nullptr;
    if (!error.empty()) return error;
    slot->busy = true;
    watch_begins(arg, slot->place);
    starpu_task* task = starpu_task_get_current();
    task->epilogue_callback_func = task_over;
    task->epilogue_callback_arg = slot;
    return "";
}

}  // namespace nn

#else

namespace nn {
void pin_host_memory() {}
void start_gpus() {}
void stop_gpus() {}
void anchor_gpu_times() {}
void* gpu_allocate(size_t) { return nullptr; }
void gpu_free(void*) {}
double time_on_gpu(const Kernel&, const KernelCall&, int) { return 0; }
void poison_on_gpu(void*, size_t) {}
std::string run_on_gpu(const TaskArg&, void* const*, GpuTaskFinish) { return ""; }
}  // namespace nn

#endif
