// An emulated CUDA device on one CPU thread: the part of the CUDA runtime that kernels/cuda uses,
// so that g++ compiles the kernels and tests run them without a GPU. The threads of a block are
// fibers that switch at barriers and warp operations; blocks run one after another. A barrier that
// not every thread of the block (or lane of the warp) reaches aborts with a message. Fibers run in
// alternating order, forwards and backwards, to expose missing barriers.
#pragma once
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/kernel.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess, cudaErrorInvalidConfiguration, cudaErrorLaunchFailure };
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
inline const char* cudaGetErrorString(cudaError_t status) {
    return status == cudaErrorLaunchFailure ? "unspecified launch failure"
           : status == cudaSuccess          ? "no error"
                                            : "invalid configuration argument";
}
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor };
inline cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
    *value = 9;
    return cudaSuccess;
}
struct cudaDeviceProp {
    char name[256];
};
// No choice that was measured here is kept for later starts.
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp*, int) {
    return cudaErrorInvalidConfiguration;
}
inline cudaError_t cudaMalloc(void** p, size_t bytes) {
    *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* p) {
    std::free(p);
    return cudaSuccess;
}

// Work is done at once, so an event is a time.
using cudaEvent_t = std::chrono::steady_clock::time_point*;
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
    *event = new std::chrono::steady_clock::time_point;
    return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
    *event = std::chrono::steady_clock::now();
    return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    *milliseconds = std::chrono::duration<float, std::milli>(*end - *begin).count();
    return cudaSuccess;
}

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
    std::memset(to, value, bytes);
    return cudaSuccess;
}

namespace nn::test {

// The scheduler of fibers, in emulate.cc.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, void (*thread)(void*), void* context);
void block_barrier();
void warp_barrier();
void* shared_memory();           // the block's dynamic shared memory
uint64_t* exchange_registers();  // one per lane
inline unsigned lane() { return threadIdx.x % 32; }

template <class T> T exchange(T value, unsigned from) {
    static_assert(sizeof(T) <= 8);
    uint64_t* registers = exchange_registers();
    std::memcpy(&registers[lane()], &value, sizeof(T));
    warp_barrier();
    std::memcpy(&value, &registers[from % 32], sizeof(T));
    return value;
}

// Combines x of all lanes like exchanges with lane ^ 16, 8, 4, 2, 1.
template <class T, class Op> T butterfly(T x, Op op) {
    static_assert(sizeof(T) <= 8);
    uint64_t* registers = exchange_registers();
    std::memcpy(&registers[lane()], &x, sizeof(T));
    warp_barrier();
    T values[32], next[32];
    for (unsigned i = 0; i < 32; ++i) std::memcpy(&values[i], &registers[i], sizeof(T));
    for (unsigned step = 16; step; step /= 2) {
        for (unsigned i = 0; i < 32; ++i) next[i] = op(values[i], values[i ^ step]);
        std::memcpy(values, next, sizeof values);
    }
    return values[lane()];
}

// Tensor cores: mma.m16n8k16 and ldmatrix.x4 for bf16, as in the PTX ISA.
void emulated_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void emulated_ldmatrix(uint32_t (&r)[4], const void* row, bool transposed);

// cp.async of 16 bytes, or of zeros. The copy happens at the wait.
void async_copy(void* to, const void* from, bool valid);
void async_commit();
void async_wait(unsigned pending);

}  // namespace nn::test

template <class... P, size_t... i>
void call_with(void (*kernel)(P...), void** arguments, std::index_sequence<i...>) {
    kernel(*static_cast<P*>(arguments[i])...);
}
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t) {
    const bool fits = grid.x && grid.y && grid.z && grid.x <= 0x7FFFFFFF && grid.y <= 65535 &&
                      grid.z <= 65535 && block.x && block.x * block.y * block.z <= 1024 &&
                      shared <= 227 * 1024;
    if (!fits) return cudaErrorInvalidConfiguration;
    struct Launch {
        void (*kernel)(P...);
        void** arguments;
    } launch{kernel, arguments};
    nn::test::run_grid(
        grid, block, shared,
        [](void* context) {
            const Launch& l = *static_cast<Launch*>(context);
            call_with(l.kernel, l.arguments, std::index_sequence_for<P...>());
        },
        &launch);
    return cudaSuccess;
}
template <class F> cudaError_t cudaFuncSetAttribute(F*, cudaFuncAttribute, int) {
    return cudaSuccess;
}

inline void __syncthreads() { nn::test::block_barrier(); }
inline void __syncwarp() { nn::test::warp_barrier(); }
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return nn::test::exchange(value, nn::test::lane() ^ unsigned(mask));
}
template <class T> T __shfl_sync(unsigned, T value, int from) {
    return nn::test::exchange(value, unsigned(from));
}
inline unsigned __ballot_sync(unsigned, bool vote) {
    unsigned votes = 0;
    for (unsigned i = 0; i < 32; ++i) votes |= unsigned(nn::test::exchange(uint32_t(vote), i)) << i;
    return votes;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
