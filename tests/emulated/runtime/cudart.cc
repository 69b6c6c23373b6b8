// The functions of libcudart that StarPU and nnlua call, for the devices of device.h. Copies from
// or to memory that is not pinned are complete when the call returns, as on a GPU. Pointers are
// checked: a copy from or to memory that does not belong to the named device fails.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/emulated/runtime/calls.h"

using namespace emulated;

namespace {

using EventPtr = std::shared_ptr<Event>;

Event& event_of(cudaEvent_t event) { return **reinterpret_cast<EventPtr*>(event); }

bool fits(int device, cudaMemcpyKind kind, bool is_source) {
    if (device == -2) return false;
    if (kind == cudaMemcpyDefault) return true;
    const cudaMemcpyKind from_device = is_source ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    const bool on_device = kind == cudaMemcpyDeviceToDevice || kind == from_device;
    return on_device == (device != host);
}

cudaError_t check_copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    const bool good =
        fits(device_of(from, bytes), kind, true) && fits(device_of(to, bytes), kind, false);
    return failed(good ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t check_peers(const void* to, int to_device, const void* from, int from_device,
                        size_t bytes) {
    const bool good = device_of(to, bytes) == to_device && device_of(from, bytes) == from_device;
    return failed(good ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t start_copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
    const bool pageable = (device_of(from, bytes) == host && !is_pinned(from, bytes)) ||
                          (device_of(to, bytes) == host && !is_pinned(to, bytes));
    put(stream, "copy", [=] { copy(to, from, bytes); });
    if (pageable) stream_of(stream).wait();
    return failed(error_of(stream_of(stream).device));
}

cudaError_t add_event(cudaEvent_t* event) {
    *event = reinterpret_cast<cudaEvent_t>(new EventPtr(std::make_shared<Event>()));
    return cudaSuccess;
}

// The same as of a GPU of the Hopper generation, where a program may ask.
int attribute(cudaDeviceAttr name) {
    switch (name) {
        case cudaDevAttrComputeCapabilityMajor: return 9;
        case cudaDevAttrMultiProcessorCount: return 132;
        case cudaDevAttrUnifiedAddressing: return 1;
        default: return 0;
    }
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    CALL;
    *count = settings().gpus;
    return failed(*count ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
    CALL;
    *version = settings().driver;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    CALL;
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
    CALL;
    if (device < 0 || device >= settings().gpus) return failed(cudaErrorInvalidDevice);
    current_device() = device;
    return failed(error_of(device));
}
cudaError_t cudaGetDevice(int* device) {
    CALL;
    *device = current_device();
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    CALL;
    if (device < 0 || device >= settings().gpus) return failed(cudaErrorInvalidDevice);
    *p = {};
    std::snprintf(p->name, sizeof p->name, "emulated GPU");
    p->totalGlobalMem = settings().memory;
    p->major = attribute(cudaDevAttrComputeCapabilityMajor);
    p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    p->concurrentKernels = p->unifiedAddressing = 1;
    p->asyncEngineCount = 2;
    p->pciBusID = device + 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr name, int) {
    CALL;
    *value = attribute(name);
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    CALL;
    *can = device != peer && settings().peers;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
    CALL_ON_DEVICE;
    return failed(settings().peers ? cudaSuccess : cudaErrorPeerAccessUnsupported);
}
cudaError_t cudaDeviceReset() {
    CALL;
    wait_for_device(current_device());
    set_error(current_device(), cudaSuccess);
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    CALL_OUTSIDE_GRAPH;
    wait_for_device(current_device());
    return failed(error_of(current_device()));
}

// --- memory ---

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    CALL_ON_DEVICE;
    *total = settings().memory;
    *free = *total - memory_used(current_device());
    return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
    CALL_OUTSIDE_GRAPH;
    *memory = allocate(current_device(), bytes);
    return failed(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* memory) {
    CALL_OUTSIDE_GRAPH;
    if (!memory) return cudaSuccess;
    const int device = device_of(memory, 1);
    if (device < 0) return failed(cudaErrorInvalidValue);
    wait_for_device(device);
    return failed(release(memory) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
    CALL_OUTSIDE_GRAPH;
    bytes = (std::max<size_t>(bytes, 1) + 4095) / 4096 * 4096;
    *memory = std::aligned_alloc(4096, bytes);
    if (!*memory) return failed(cudaErrorMemoryAllocation);
    pin(*memory, bytes);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
    CALL_OUTSIDE_GRAPH;
    if (!memory) return cudaSuccess;
    if (!unpin(memory)) return failed(cudaErrorInvalidValue);
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
    CALL_ON_DEVICE;
    return failed(pin(memory, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* memory) {
    CALL_ON_DEVICE;
    return failed(unpin(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** on_device, void* memory, unsigned) {
    CALL_ON_DEVICE;
    *on_device = memory;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
    CALL_ON_DEVICE;
    const int device = device_of(memory, 1);
    *attributes = {};
    attributes->type = device >= 0            ? cudaMemoryTypeDevice
                       : is_pinned(memory, 1) ? cudaMemoryTypeHost
                                              : cudaMemoryTypeUnregistered;
    attributes->device = std::max(device, 0);
    if (device >= 0)
        attributes->devicePointer = const_cast<void*>(memory);
    else
        attributes->hostPointer = const_cast<void*>(memory);
    return cudaSuccess;
}

// --- copies ---

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    CALL_OUTSIDE_GRAPH;
    if (const cudaError_t wrong = check_copy(to, from, bytes, kind)) return wrong;
    copy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    CALL_ON_DEVICE;
    if (const cudaError_t wrong = check_copy(to, from, bytes, kind)) return wrong;
    return start_copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           size_t bytes) {
    CALL_OUTSIDE_GRAPH;
    if (const cudaError_t wrong = check_peers(to, to_device, from, from_device, bytes))
        return wrong;
    copy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t bytes, cudaStream_t stream) {
    CALL_ON_DEVICE;
    if (const cudaError_t wrong = check_peers(to, to_device, from, from_device, bytes))
        return wrong;
    return start_copy(to, from, bytes, stream);
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
    CALL_OUTSIDE_GRAPH;
    if (device_of(memory, bytes) < 0) return failed(cudaErrorInvalidValue);
    std::memset(memory, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
    CALL_ON_DEVICE;
    if (device_of(memory, bytes) != current_device()) return failed(cudaErrorInvalidValue);
    put(stream, "memset", [=] { std::memset(memory, value, bytes); });
    return cudaSuccess;
}

// --- streams and events ---

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    CALL_ON_DEVICE;
    *stream = new_stream();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    CALL_ON_DEVICE;
    delete_stream(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CALL_OUTSIDE_GRAPH;
    stream_of(stream).wait();
    return failed(error_of(stream_of(stream).device));
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    CALL_ON_DEVICE;
    return add_event(event);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    CALL_ON_DEVICE;
    return add_event(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    CALL;
    delete reinterpret_cast<EventPtr*>(event);
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    CALL_OUTSIDE_GRAPH;
    const EventPtr e = *reinterpret_cast<EventPtr*>(event);
    e->recorded = true;
    ++e->pending;
    stream_of(stream).put([e] {  // also after a failure, so that nobody waits for ever
        std::lock_guard lock(e->mutex);
        e->time = Clock::now();
        --e->pending;
        e->changed.notify_all();
    });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    CALL_OUTSIDE_GRAPH;
    return event_of(event).pending ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    CALL_OUTSIDE_GRAPH;
    Event& e = event_of(event);
    std::unique_lock lock(e.mutex);
    e.changed.wait(lock, [&] { return e.pending == 0; });
    return failed(error_of(current_device()));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    CALL_ON_DEVICE;
    Event &b = event_of(begin), &e = event_of(end);
    if (!b.recorded || !e.recorded) return failed(cudaErrorInvalidResourceHandle);
    if (b.pending || e.pending) return failed(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(e.time - b.time).count();
    return cudaSuccess;
}

// --- errors ---

cudaError_t cudaGetLastError() { return take_last_error(); }
const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        case cudaErrorInitializationError: return "initialization error";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
        case cudaErrorLaunchFailure: return "unspecified launch failure";
        case cudaErrorNotSupported: return "operation not supported";
        default: return "an error of the emulated CUDA run time";
    }
}

// --- what StarPU links but does not call here: copies of matrices ---

cudaError_t cudaMemcpy2D(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind) {
    return failed(cudaErrorNotSupported);
}
cudaError_t cudaMemcpy2DAsync(void*, size_t, const void*, size_t, size_t, size_t, cudaMemcpyKind,
                              cudaStream_t) {
    return failed(cudaErrorNotSupported);
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms*) { return failed(cudaErrorNotSupported); }
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms*, cudaStream_t) {
    return failed(cudaErrorNotSupported);
}

// --- what nvcc's objects call: kernels.cc replaces every kernel, so none is launched here ---

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
    return failed(cudaErrorNotSupported);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
    return failed(cudaErrorNotSupported);
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
    *kernel = nullptr;
    return failed(cudaErrorNotSupported);
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) {
    return failed(cudaErrorNotSupported);
}
void** __cudaRegisterFatBinary(void*) {
    static void* handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*) {}

}  // extern "C"
