// The CUDA kernels of the ops in kernels/pointwise.inc, compiled in parts (pointwise_*.cu). There
// is one kernel for each type computed in, which keeps them few; loads look up the operand's dtype,
// which memory latency hides. f32 and bf16 have another kernel, for rows that can be loaded 16
// bytes at a time.
#pragma once
#include "kernels/cuda/cuda.cuh"
#include "kernels/pointwise.h"

namespace nn::NN_TARGET::pointwise {
namespace {

// Calls f with a null pointer to the dtype's C++ type, for bool and the dtypes computed in T.
template <class T, class F> __device__ void visit(Dtype dtype, F f) {
    if (dtype == Dtype::boolean) return f((uint8_t*)nullptr);
    visit_computed<T>(dtype, f);
}

template <class T> __device__ T load(const Source& source, int64_t i) {
    T x;
    visit<T>(source.dtype,
             [&]<class S>(S*) { x = T(number(reinterpret_cast<const S*>(source.data)[i])); });
    return x;
}

// The offset of element i of the output in each operand.
template <int count> __device__ void locate(const Layout& layout, int64_t i, int64_t (&offset)[4]) {
    const bool small = layout.total <= 0x7FFFFFFF;  // for divisions four times as fast
// Each axis waits for the division of the last, so copies of the loop would gain nothing.
#pragma unroll 1
    for (int axis = layout.ndim - 1; axis >= 0; --axis) {
        int64_t above = 0;
        if (axis)
            above = small ? uint32_t(i) / uint32_t(layout.extent[axis]) : i / layout.extent[axis];
        const int64_t index = i - above * layout.extent[axis];
#pragma unroll
        for (int k = 0; k < count; ++k) offset[k] += index * layout.source[k].stride[axis];
        i = above;
    }
}

template <class Form, class T>
__global__ void __launch_bounds__(threads) strided(const Layout layout, void* y) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= layout.total) return;
    int64_t offset[4] = {};
    locate<Form::count>(layout, i, offset);
    T x[4] = {};
#pragma unroll
    for (int k = 0; k < Form::count; ++k)
        if (Form::needed >> k & 1)
            x[k] = layout.source[k].data ? load<T>(layout.source[k], offset[k])
                                         : T(layout.source[k].scalar);
    const auto result = Form::apply(x[0], x[1], x[2], x[3]);
    visit<T>(layout.out, [&]<class S>(S*) { static_cast<S*>(y)[i] = stored<S>(result); });
}

// n elements of a row of the output, from element i on, with operands stored as S (or bool). n = 1
// is for the end of an output that is one row.
template <class Form, class S, int n>
__device__ void compute_pack(const Layout& layout, void* y, int64_t i) {
    int64_t offset[4] = {};
    if constexpr (n > 1)
        locate<Form::count>(layout, i, offset);
    else
        for (int k = 0; k < Form::count; ++k) offset[k] = i * layout.source[k].stride[0];
    float x[4][n] = {};
#pragma unroll
    for (int k = 0; k < Form::count; ++k) {
        if (!(Form::needed >> k & 1)) continue;
        using Stored = std::conditional_t<Form::condition, uint8_t, S>;
        const Source& source = layout.source[k];
        const auto load = [&](auto* data) {
            if (source.stride[layout.ndim - 1]) return load_pack<n>(data + offset[k], x[k]);
            for (int e = 0; e < n; ++e) x[k][e] = number(data[offset[k]]);
        };
        if (!source.data)
            for (int e = 0; e < n; ++e) x[k][e] = float(source.scalar);
        else if (k == 0)
            load(reinterpret_cast<const Stored*>(source.data));
        else
            load(reinterpret_cast<const S*>(source.data));
    }
    using Result = decltype(Form::apply(0.0f, 0.0f, 0.0f, 0.0f));
    Result result[n];
#pragma unroll
    for (int e = 0; e < n; ++e) result[e] = Form::apply(x[0][e], x[1][e], x[2][e], x[3][e]);
    using Out = std::conditional_t<std::is_same_v<Result, bool>, uint8_t, S>;
    store_pack<n>(static_cast<Out*>(y) + i, result);
}

// 16 bytes of S per thread. The length of rows is a multiple of that, unless the output is one row.
template <class Form, class S>
__global__ void __launch_bounds__(threads) packs(const Layout layout, void* y) {
    constexpr int width = lanes16<S>;
    int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
    if (i + width <= layout.total) return compute_pack<Form, S, width>(layout, y, i);
#pragma unroll 1
    for (; i < layout.total; ++i) compute_pack<Form, S, 1>(layout, y, i);
}

// Whether packs of `width` elements are contiguous in the output, and in every operand contiguous
// or the same element.
bool is_packed(const Layout& layout, const void* y, int width) {
    const auto fits = [&](const void* data, Dtype dtype) {
        return aligned(data, dtype_size(dtype) * size_t(width));
    };
    const int row = layout.ndim - 1;
    bool yes = fits(y, layout.out) && (row == 0 || layout.extent[row] % width == 0);
    for (int k = 0; k < layout.count; ++k) {
        const Source& source = layout.source[k];
        if (!source.data || source.stride[row] == 0) continue;
        yes = yes && source.stride[row] == 1 && fits(source.data, source.dtype);
        for (int axis = 0; axis < row; ++axis) yes = yes && source.stride[axis] % width == 0;
    }
    return yes;
}

using Launched = void (*)(Layout, void*);
void start(const KernelCall& call, const Layout& layout, Launched strided, Launched f32_packs,
           Launched bf16_packs) {
    void* y = call.operand<void>(0);
    if (layout.total == 0) return;
    const bool half = call.dtype == Dtype::bf16;
    const int width = half ? lanes16<bf16> : lanes16<float>;
    if (f32_packs && is_packed(layout, y, width))
        launch_each(call, layout.total, width, half ? bf16_packs : f32_packs, layout, y);
    else
        launch_each(call, layout.total, 1, strided, layout, y);
}

template <class Form, class T> void compute(const KernelCall& call, const Layout& layout) {
    if constexpr (std::is_same_v<T, float>)
        start(call, layout, strided<Form, float>, packs<Form, float>, packs<Form, bf16>);
    else  // rare
        start(call, layout, strided<Form, T>, nullptr, nullptr);
}

}  // namespace
}  // namespace nn::NN_TARGET::pointwise
