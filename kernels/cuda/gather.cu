// gather: y[o, j, i] = x[o, index[o, j, i], i], its adjoint scatter_add, and scatter, which
// overwrites: the last j wins. An index out of range fails the call; gather then reads 0, and the
// others change nothing. To scatter, one thread handles a column (o, i), in the order of j: without
// atomics, but slow with few columns.
#include "kernels/cuda/cuda.cuh"
#include "kernels/params/gather.h"
#include "kernels/visit_any.h"

namespace nn::NN_TARGET {
namespace {

template <class U> constexpr int width = smaller(8, lanes16<U>);  // elements per thread

// packed: index and y are aligned to 16 bytes.
template <class U>
__global__ void __launch_bounds__(threads)
    gather_kernel(U* y, const U* x, const void* index, nn_gather_params p, bool packed,
                  Fault* fault) {
    constexpr int wide = width<U>;
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * wide;
    const int64_t left = p.outer * p.m * p.inner - i;
    if (left <= 0) return;
    int64_t at[wide];
    if (p.shared)
        for (int e = 0; e < wide; ++e)
            at[e] = e < left ? load_index(index, Dtype(p.index_dtype), (i + e) / p.inner % p.m) : 0;
    else if (Dtype(p.index_dtype) == Dtype::i32)
        load_run<wide>(static_cast<const int32_t*>(index) + i, left, packed, at);
    else
        load_run<wide>(static_cast<const int64_t*>(index) + i, left, packed, at);
    U value[wide] = {};
#pragma unroll
    for (int e = 0; e < wide; ++e) {
        if (e >= left) continue;
        const int64_t o = (i + e) / (p.m * p.inner), column = (i + e) % p.inner;
        if (at[e] >= 0 && at[e] < p.n)
            value[e] = x[(o * p.n + at[e]) * p.inner + column];
        else
            report(fault, at[e]);
    }
    store_run<wide>(y + i, left, packed, value);
}

template <class U> void run_gather(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    const int64_t n = p.outer * p.m * p.inner;
    if (n == 0) return;
    U* y = call.operand<U>(0);
    const void* index = call.input<void>(2);
    launch_each(call, n, width<U>, gather_kernel<U>, y, call.input<U>(1), index, p,
                all_aligned(y, index),
                expect(call, "index %%lld is outside [0,%lld)", (long long)p.n));
}

void gather(const KernelCall& call) {
    visit_size(int64_t(dtype_size(call.dtype)), [&]<class U>(U*) { run_gather<U>(call); });
}

// Adds dy to sum[(c, r)], or overwrites it, for columns c of [first, first + columns) of
// outer * inner. The element is at (c / inner * n + r) * inner + c % inner, or, if `compact`, at
// r * columns + c - first.
template <bool adds, class S, class T>
__global__ void scatter_kernel(S* sum, const T* dy, const void* index, nn_gather_params p,
                               int64_t first, int64_t columns, bool compact, Fault* fault) {
    const int64_t thread = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (thread >= columns) return;
    const int64_t o = (first + thread) / p.inner, i = (first + thread) % p.inner;
    S* to = compact ? sum + thread : sum + o * p.n * p.inner + i;
    const int64_t pitch = compact ? columns : p.inner;
    for (int64_t j = 0; j < p.m; ++j) {
        const int64_t from = (o * p.m + j) * p.inner + i;
        const int64_t at = load_index(index, Dtype(p.index_dtype), p.shared ? j : from);
        if (at < 0 || at >= p.n)
            report(fault, at);
        else if constexpr (adds)
            to[at * pitch] = S(to[at * pitch] + S(number(dy[from])));
        else
            to[at * pitch] = dy[from];
    }
}

__global__ void round_columns(bf16* dx, const float* sum, nn_gather_params p, int64_t first,
                              int64_t columns) {
    const int64_t thread = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (thread >= columns * p.n) return;
    const int64_t r = thread / columns, column = first + thread % columns;
    const int64_t o = column / p.inner, i = column % p.inner;
    dx[(o * p.n + r) * p.inner + i] = round_to_bf16(sum[thread]);
}

// bfloat16 loses small terms of a large sum, so some columns at a time are summed in float.
void scatter_rounded(const KernelCall& call, Fault* fault) {
    const auto& p = call.get<nn_gather_params>();
    const int64_t all = p.outer * p.inner;
    const int64_t room = call.gpu ? int64_t(call.gpu->workspace_bytes / sizeof(float)) / p.n : 0;
    const int64_t width = smaller(all, larger<int64_t>(room, 1));
    float* sum = workspace<float>(call, p.n * width);
    if (!sum) return;
    for (int64_t first = 0; first < all; first += width) {
        const int64_t columns = smaller(width, all - first);
        const bool good =
            zero(call, sum, size_t(p.n * columns) * sizeof(float), "zeroing the sums") &&
            launch_each(call, columns, 1, scatter_kernel<true, float, bf16>, sum,
                        call.input<bf16>(1), call.input<void>(2), p, first, columns, true, fault) &&
            launch_each(call, columns * p.n, 1, round_columns, call.operand<bf16>(0), sum, p, first,
                        columns);
        if (!good) return;
    }
}

template <class T> void run_scatter(const KernelCall& call, Fault* fault) {
    const auto& p = call.get<nn_gather_params>();
    const int64_t columns = p.outer * p.inner;
    T* dx = call.operand<T>(0);
    if (zero(call, dx, size_t(columns * p.n) * sizeof(T), "zeroing the result"))
        launch_each(call, columns, 1, scatter_kernel<true, T, T>, dx, call.input<T>(1),
                    call.input<void>(2), p, int64_t(0), columns, false, fault);
}

void scatter_add(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    if (p.outer * p.inner * p.n == 0) return;
    Fault* fault = expect(call, "index %%lld is outside [0,%lld)", (long long)p.n);
    visit_any(call.dtype, [&]<class T>(T*) {
        if constexpr (std::is_same_v<T, bf16>)
            scatter_rounded(call, fault);
        else
            run_scatter<T>(call, fault);
    });
}

void scatter(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    if (p.outer * p.inner * p.n == 0) return;
    visit_size(int64_t(dtype_size(call.dtype)), [&]<class U>(U*) {
        launch_each(call, p.outer * p.inner, 1, scatter_kernel<false, U, U>, call.operand<U>(0),
                    call.input<U>(1), call.input<void>(2), p, int64_t(0), p.outer * p.inner, false,
                    expect(call, "index %%lld is outside [0,%lld)", (long long)p.n));
    });
}

NN_IMPLEMENT(gather, scatter, scatter_add);

}  // namespace
}  // namespace nn::NN_TARGET
