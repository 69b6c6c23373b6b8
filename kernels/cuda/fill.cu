// fill, arange and cast, with the conversions of kernels/cpu/fill.cc.
#include <cstring>

#include "kernels/cuda/cuda.cuh"
#include "kernels/params/fill.h"

namespace nn::NN_TARGET {
namespace {

template <class T, class A> NN_HD T converted(A x) {
    if constexpr (std::is_integral_v<A> || !std::is_integral_v<T>)
        return stored<T>(x);
    else if constexpr (sizeof(T) == 4)
        return T(x);
    else
        return T(int64_t(x));
}

// --- fill ---

template <class U> __global__ void fill_kernel(U* y, int64_t n, U value, bool packed) {
    constexpr int width = lanes16<U>;
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
    U values[width];
    for (U& each : values) each = value;
    store_run<width>(y + i, n - i, packed, values);
}

template <class U, class T> void fill_with(const KernelCall& call, T value) {
    const int64_t n = call.get<nn_fill_params>().n;
    if (n == 0) return;
    U bits;
    std::memcpy(&bits, &value, sizeof bits);
    U* y = call.operand<U>(0);
    launch_each(call, n, lanes16<U>, fill_kernel<U>, y, n, bits, aligned(y));
}

void fill(const KernelCall& call) {
    const double value = call.get<nn_fill_params>().value;
    switch (call.dtype) {
        case Dtype::f32: return fill_with<uint32_t>(call, float(value));
        case Dtype::f64: return fill_with<uint64_t>(call, value);
        case Dtype::bf16: return fill_with<uint16_t>(call, round_to_bf16(float(value)));
        case Dtype::i32: return fill_with<uint32_t>(call, converted<int32_t>(value));
        case Dtype::i64: return fill_with<uint64_t>(call, converted<int64_t>(value));
        case Dtype::u8: return fill_with<uint8_t>(call, converted<uint8_t>(value));
        default: return fill_with<uint8_t>(call, uint8_t(value != 0));
    }
}

// --- arange ---

__device__ inline void store_any(void* y, Dtype dtype, int64_t i, double value) {
    visit_stored(dtype, [&]<class T>(T*) { static_cast<T*>(y)[i] = stored<T>(value); });
}
__device__ inline void store_any(void* y, Dtype dtype, int64_t i, int64_t value) {
    visit_computed<int64_t>(dtype, [&]<class T>(T*) { static_cast<T*>(y)[i] = T(value); });
}

template <class Step>
__global__ void arange_kernel(void* y, Dtype dtype, int64_t n, Step start, Step step) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i < n) store_any(y, dtype, i, start + step * Step(i));
}

void arange(const KernelCall& call) {
    const auto& p = call.get<nn_arange_params>();
    if (p.n == 0) return;
    const Shape shape{blocks_for(p.n, threads), threads};
    if (is_float(call.dtype))
        launch(call, shape, arange_kernel<double>, call.operand<void>(0), call.dtype, p.n, p.start,
               p.step);
    else
        launch(call, shape, arange_kernel<int64_t>, call.operand<void>(0), call.dtype, p.n,
               int64_t(p.start), int64_t(p.step));
}

// --- cast ---

template <class A> __device__ void store_cast(void* y, Dtype to, int64_t i, A x) {
    switch (to) {
        case Dtype::f32: static_cast<float*>(y)[i] = float(x); break;
        case Dtype::f64: static_cast<double*>(y)[i] = double(x); break;
        case Dtype::bf16: static_cast<bf16*>(y)[i] = round_to_bf16(float(x)); break;
        case Dtype::i32: static_cast<int32_t*>(y)[i] = converted<int32_t>(x); break;
        case Dtype::i64: static_cast<int64_t*>(y)[i] = converted<int64_t>(x); break;
        case Dtype::u8: static_cast<uint8_t*>(y)[i] = converted<uint8_t>(x); break;
        default: static_cast<uint8_t*>(y)[i] = x != A(0);
    }
}

// A: float, double or int64_t, which holds elements of `from` exactly.
template <class A>
__global__ void cast_kernel(void* y, Dtype to, const void* x, Dtype from, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= n) return;
    visit_computed<A>(
        from, [&]<class T>(T*) { store_cast(y, to, i, A(number(static_cast<const T*>(x)[i]))); });
}

// Between bf16 and f32, 8 elements a thread: 16 bytes of bf16.
template <class T, class S> __global__ void cast_packs(T* y, const S* x, int64_t n) {
    constexpr int width = 8;
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
    if (i >= n) return;
    float value[width];
    load_run<width>(x + i, n - i, true, value);
    store_run<width>(y + i, n - i, true, value);
}

template <class T, class S> void run_packs(const KernelCall& call, int64_t n) {
    launch_each(call, n, 8, cast_packs<T, S>, call.operand<T>(0), call.input<S>(1), n);
}

void cast(const KernelCall& call) {
    const auto& p = call.get<nn_cast_params>();
    const Dtype from = Dtype(p.from);
    void* y = call.operand<void>(0);
    const void* x = call.input<void>(1);
    if (p.n == 0) return;
    const bool packed = all_aligned(x, y);
    if (packed && from == Dtype::f32 && call.dtype == Dtype::bf16)
        return run_packs<bf16, float>(call, p.n);
    if (packed && from == Dtype::bf16 && call.dtype == Dtype::f32)
        return run_packs<float, bf16>(call, p.n);
    const auto kernel = from == Dtype::f64 ? cast_kernel<double>
                        : is_float(from)   ? cast_kernel<float>
                                           : cast_kernel<int64_t>;
    launch_each(call, p.n, 1, kernel, y, call.dtype, x, from, p.n);
}

NN_IMPLEMENT(fill, arange, cast);

}  // namespace
}  // namespace nn::NN_TARGET
