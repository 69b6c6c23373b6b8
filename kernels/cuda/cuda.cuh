// Included by every CUDA kernel file: launches, storage types, loads and stores of 16 bytes, and
// deterministic reductions. Kernels never allocate; temporary data is in the worker's workspace.
//
// g++ also compiles the files, against tests/emulated/cuda_runtime.h, which runs them on a CPU. For
// this, kernels are launched with launch(), every thread of a block reaches every barrier, and
// every lane reaches every warp operation.
#pragma once
#include <cuda_runtime.h>

#include <cstdio>
#include <type_traits>

#include "kernels/implement.h"
#include "kernels/math/activations.h"
#include "kernels/math/base.h"
#include "kernels/types.h"

namespace nn::NN_TARGET {

// For storage; arithmetic is done in float.
struct bf16 {
    uint16_t bits;
};

namespace {

// --- launching ---

inline cudaStream_t stream_of(const KernelCall& call) {
    return static_cast<cudaStream_t>(call.stream);
}

// False; the call fails because `what` did.
inline bool failed(const KernelCall& call, const char* what, const char* why) {
    call.fail("CUDA device %d: %s failed: %s", call.gpu ? call.gpu->device : 0, what, why);
    return false;
}
// False, and the call fails, unless `status` is success.
inline bool check(const KernelCall& call, cudaError_t status, const char* what) {
    if (take_failure()) status = cudaErrorLaunchFailure;
    return status == cudaSuccess || failed(call, what, cudaGetErrorString(status));
}

struct Shape {
    dim3 blocks;
    unsigned threads;
    size_t shared = 0;  // bytes of dynamic shared memory
};

// Converts the arguments, void* too, to the kernel's parameter types. CUDA wants a request for more
// than 48 KB of shared memory.
template <class... P, class... A>
bool launch(const KernelCall& call, const Shape& shape, void (*kernel)(P...),
            const A&... arguments) {
    if (shape.shared > 48 * 1024 &&
        !check(call,
               cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    int(shape.shared)),
               "the request for shared memory"))
        return false;
    const auto start = [&](P... values) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&values))...};
        return cudaLaunchKernel(kernel, shape.blocks, dim3(shape.threads), pointers, shape.shared,
                                stream_of(call));
    };
    return check(call, start(P(arguments)...), "the launch");
}

NN_HD constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
template <class T> NN_HD constexpr T smaller(T a, T b) { return a < b ? a : b; }
template <class T> NN_HD constexpr T larger(T a, T b) { return a > b ? a : b; }

// Blocks for n > 0 items, `each` per block. A launch of more than 2^31 - 1 blocks fails.
inline dim3 blocks_for(int64_t n, int64_t each) {
    return dim3(unsigned(smaller<int64_t>(ceil_div(n, each), 0xFFFFFFFF)));
}

constexpr unsigned threads = 256;  // of a block, unless a launch says otherwise

// Launches a thread for every `each` of n > 0 items.
template <class K, class... A>
bool launch_each(const KernelCall& call, int64_t n, int64_t each, K kernel, const A&... arguments) {
    return launch(call, {blocks_for(n, threads * each), threads}, kernel, arguments...);
}

inline bool zero(const KernelCall& call, void* memory, size_t bytes, const char* what) {
    return check(call, cudaMemsetAsync(memory, 0, bytes, stream_of(call)), what);
}

// The workspace as memory for n values of T; nullptr, and the call fails, if it is too small.
template <class T> T* workspace(const KernelCall& call, int64_t n) {
    if (call.gpu && size_t(n) * sizeof(T) <= call.gpu->workspace_bytes)
        return static_cast<T*>(call.gpu->workspace);
    call.fail("needs %lld bytes of workspace on the GPU; %lld are available",
              (long long)(n * int64_t(sizeof(T))),
              (long long)(call.gpu ? call.gpu->workspace_bytes : 0));
    return nullptr;
}

// Sets the text for a bad value, with one %lld; returns the argument of a kernel for report().
template <class... A> Fault* expect(const KernelCall& call, const char* format, A... arguments) {
    std::snprintf(call.fault->format, sizeof call.fault->format, format, arguments...);
    return call.fault;
}
__device__ inline void report(Fault* fault, int64_t value) {
    fault->value = value;
    fault->failed = 1;
}

template <class T> __device__ T* dynamic_shared() {
#ifdef __CUDACC__
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    return reinterpret_cast<T*>(shared_bytes);
#else
    return static_cast<T*>(test::shared_memory());
#endif
}

// --- storage ---

NN_HD inline float number(bf16 x) { return float_of(uint32_t(x.bits) << 16); }
template <class T> NN_HD T number(T x) { return x; }

// To nearest even; NaN stays NaN.
NN_HD inline bf16 round_to_bf16(float x) {
#ifdef __CUDA_ARCH__
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
#else
    const uint32_t u = bits_of(x);
    const uint32_t rounded = u + 0x7FFF + ((u >> 16) & 1);
    return {uint16_t((x != x ? (u | 0x400000) : rounded) >> 16)};
#endif
}
template <class T, class A> NN_HD T stored(A x) {
    if constexpr (std::is_same_v<T, bf16>)
        return round_to_bf16(float(x));
    else
        return T(x);
}

// Like visit_float, in a kernel.
template <class F> __device__ void visit_stored(Dtype dtype, F f) {
    if (dtype == Dtype::f32) return f((float*)nullptr);
    if (dtype == Dtype::f64) return f((double*)nullptr);
    f((bf16*)nullptr);
}
// The same for the dtypes that are computed in T: float, double or int64_t.
template <class T, class F> __device__ void visit_computed(Dtype dtype, F f) {
    if constexpr (std::is_same_v<T, float>) {
        if (dtype == Dtype::f32) return f((float*)nullptr);
        f((bf16*)nullptr);
    } else if constexpr (std::is_same_v<T, double>) {
        f((double*)nullptr);
    } else {
        if (dtype == Dtype::i64) return f((int64_t*)nullptr);
        if (dtype == Dtype::i32) return f((int32_t*)nullptr);
        f((uint8_t*)nullptr);
    }
}

__device__ inline int64_t load_index(const void* data, Dtype dtype, int64_t i) {
    return dtype == Dtype::i32 ? int64_t(static_cast<const int32_t*>(data)[i])
                               : static_cast<const int64_t*>(data)[i];
}

// Calls f with a null pointer to an unsigned type of 1, 2, 4 or 8 bytes.
template <class F> void visit_size(int64_t bytes, F f) {
    switch (bytes) {
        case 1: return f((uint8_t*)nullptr);
        case 2: return f((uint16_t*)nullptr);
        case 4: return f((uint32_t*)nullptr);
        default: return f((uint64_t*)nullptr);
    }
}

// --- functions for what is rounded to bf16, with errors of about 2^-22 ---

// e^x for x <= 0: one instruction of the units for special functions instead of a polynomial.
__device__ inline float approximate_exp_negative(float x) {
    float y = x * 1.44269504088896341f;
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(y));
    return y;
#else
    return std::exp2(y);
#endif
}
__device__ inline float approximate_inverse(float x) {
#ifdef __CUDA_ARCH__
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return 1 / x;
#endif
}
struct ApproximateMath {
    __device__ static float exp_negative(float x) { return approximate_exp_negative(x); }
    __device__ static float inverse(float x) { return approximate_inverse(x); }
};
// Exact enough for results that are stored as T.
template <class T>
using MathFor = std::conditional_t<std::is_same_v<T, bf16>, ApproximateMath, math::ExactMath>;

// --- packs of neighbouring elements ---

template <class T, int n> struct alignas(sizeof(T) * n > 16 ? 16 : sizeof(T) * n) Pack {
    T value[n];
};
template <class T> constexpr int lanes16 = 16 / int(sizeof(T));  // elements in 16 bytes

inline bool aligned(const void* p, size_t bytes = 16) {
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

template <class... P> bool all_aligned(P... pointers) { return (aligned(pointers) && ...); }

template <int n, class T, class A> __device__ void load_pack(const T* from, A* x) {
    const Pack<T, n> pack = *reinterpret_cast<const Pack<T, n>*>(from);
#pragma unroll
    for (int e = 0; e < n; ++e) x[e] = A(number(pack.value[e]));
}
// One store of 16 bytes to global memory. nvcc splits an assignment of structs in a loop into four.
__device__ inline void store16(void* to, uint4 x) {
#ifdef __CUDA_ARCH__
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
#else
    *static_cast<uint4*>(to) = x;
#endif
}
template <int n, class T, class A> __device__ void store_pack(T* to, const A* x) {
    Pack<T, n> pack;
#pragma unroll
    for (int e = 0; e < n; ++e) pack.value[e] = stored<T>(x[e]);
    if constexpr (sizeof pack == 16) {
        uint4 bits;
        memcpy(&bits, &pack, 16);
        store16(to, bits);
    } else {
        *reinterpret_cast<Pack<T, n>*>(to) = pack;
    }
}

// A thread's `width` elements of a tile with n elements left: by packs of 16 bytes if the tile is
// aligned (packed), else, and at the tile's end, one by one. Elements past the end read as 0.
template <int width, class T, class A>
__device__ void load_run(const T* from, int64_t n, bool packed, A* x) {
    constexpr int each = smaller(width, lanes16<T>);
    if (packed && n >= width) {
#pragma unroll
        for (int e = 0; e < width; e += each) load_pack<each>(from + e, x + e);
    } else {
#pragma unroll
        for (int e = 0; e < width; ++e) x[e] = e < n ? A(number(from[e])) : A(0);
    }
}
template <int width, class T, class A>
__device__ void store_run(T* to, int64_t n, bool packed, const A* x) {
    constexpr int each = smaller(width, lanes16<T>);
    if (packed && n >= width) {
#pragma unroll
        for (int e = 0; e < width; e += each) store_pack<each>(to + e, x + e);
    } else {
#pragma unroll
        for (int e = 0; e < width; ++e)
            if (e < n) to[e] = stored<T>(x[e]);
    }
}

// --- reductions ---

constexpr unsigned all_lanes = 0xFFFFFFFFu;

struct Sum {
    template <class A> __device__ A operator()(A a, A b) const { return a + b; }
};
// Ignores NaN.
struct Max {
    template <class A> __device__ A operator()(A a, A b) const { return b > a ? b : a; }
};

// The result is the same in every lane, whatever the order of execution; op must commute.
template <class A, class Op> __device__ A warp_reduce(A x, Op op) {
#ifdef __CUDACC__
#pragma unroll
    for (int step = 16; step; step /= 2) x = op(x, __shfl_xor_sync(all_lanes, x, step));
    return x;
#else
    return test::butterfly(x, op);  // the same, with fewer switches of fibers
#endif
}

// Over `lanes` neighbouring threads, 1, 2, 4, ... or 32. All threads of the warp must call it.
template <class A> __device__ A sum_lanes(A x, unsigned lanes) {
    for (unsigned step = lanes / 2; step; step /= 2) x += __shfl_xor_sync(all_lanes, x, int(step));
    return x;
}

// The number of threads for a row of n elements at 16 bytes each, if it divides a warp; else 0.
template <class T> unsigned lanes_for(int64_t n) {
    const int64_t packs = n / lanes16<T>;
    return n % lanes16<T> == 0 && packs > 0 && packs <= 32 && 32 % packs == 0 ? unsigned(packs) : 0;
}

// Over a block of up to 1024 threads, a multiple of 32. All threads get the result.
template <class A, class Op> __device__ A block_reduce(A x, Op op) {
    __shared__ A warp_results[32];
    x = warp_reduce(x, op);
    const unsigned warps = blockDim.x / 32;
    if (warps == 1) return x;
    __syncthreads();  // those of an earlier reduction have been read
    if (threadIdx.x % 32 == 0) warp_results[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_results[0];
    for (unsigned w = 1; w < warps; ++w) x = op(x, warp_results[w]);
    return x;
}

// Threads for a row of n items, `each` per thread: a multiple of 32, at most `limit`.
inline unsigned threads_for(int64_t n, int64_t each, unsigned limit = 256) {
    const int64_t wanted = ceil_div(ceil_div(n, each), 32) * 32;
    return unsigned(wanted < 32 ? 32 : wanted < int64_t(limit) ? wanted : int64_t(limit));
}

}  // namespace
}  // namespace nn::NN_TARGET
