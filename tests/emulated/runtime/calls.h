// What all functions of libcudart do first (cudart.cc, graphs.cc), and how they put work on a
// stream.
#pragma once
#include <functional>

#include "tests/emulated/runtime/device.h"

// Counts the call, and returns from the function if it fails: by request, or because a kernel on
// the current device has failed before.
#define CALL                            \
    static Function function(__func__); \
    if (const cudaError_t error = function.call(); error != cudaSuccess) return error

#define CALL_ON_DEVICE                                                                \
    CALL;                                                                             \
    if (const cudaError_t sticky = error_of(current_device()); sticky != cudaSuccess) \
    return failed(sticky)

#define CALL_OUTSIDE_GRAPH \
    CALL_ON_DEVICE;        \
    if (const cudaError_t wrong = check_not_recording(); wrong != cudaSuccess) return wrong

namespace emulated {

// Something on a stream, or recorded by it. After a kernel failed, its device does no more work.
void put(cudaStream_t stream, const char* name, std::function<void()> work);
// A call that waits or allocates ends a recording of its thread.
cudaError_t check_not_recording();

}  // namespace emulated
