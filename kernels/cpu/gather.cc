// gather: y[o, j, i] = x[o, index[o, j, i], i], and its adjoint scatter_add. An index out of range
// fails the call; gather then reads 0, and scatter_add adds nothing.
#include <cstdlib>

#include "kernels/cpu/cpu.h"

namespace nn::NN_TARGET {
namespace {

template <class I> bool in_range(const KernelCall& call, I index, int64_t n) {
    if (int64_t(index) >= 0 && int64_t(index) < n) return true;
    call.fail("index %lld is outside [0,%lld)", (long long)index, (long long)n);
    return false;
}

template <class T, class I> void gather_tile(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    T* y = call.operand<T>(0);
    const T* x = call.input<T>(1);
    const I* index = call.input<I>(2);
    for (int64_t o = 0; o < p.outer; ++o, x += p.n * p.inner)
        for (int64_t j = 0; j < p.m; ++j, y += p.inner, index += p.inner)
            for (int64_t i = 0; i < p.inner; ++i)
                y[i] = in_range(call, index[i], p.n) ? x[int64_t(index[i]) * p.inner + i] : T(0);
}

void gather(const KernelCall& call) {
    visit_any(call.dtype, [&]<class T>(T*) {
        visit_index(Dtype(call.get<nn_gather_params>().index_dtype),
                    [&]<class I>(I*) { gather_tile<T, I>(call); });
    });
}

// sum[row, i] += dy for columns [0, cols) of one (n, inner) slice; `pitch` is sum's row length.
template <class A, class T, class I>
void scatter_columns(const KernelCall& call, A* sum, int64_t pitch, const T* dy, const I* index,
                     int64_t cols) {
    const auto& p = call.get<nn_gather_params>();
    for (int64_t j = 0; j < p.m; ++j, dy += p.inner, index += p.inner)
        for (int64_t i = 0; i < cols; ++i)
            if (in_range(call, index[i], p.n)) sum[int64_t(index[i]) * pitch + i] += A(dy[i]);
}

// bfloat16 loses small terms of a large sum, so some columns at a time are summed in float.
template <class I>
void scatter_rounded(const KernelCall& call, bf16* dx, const bf16* dy, const I* index) {
    const auto& p = call.get<nn_gather_params>();
    const int64_t wanted = (int64_t(1) << 18) / (p.n + 1) + 1,
                  width = wanted < p.inner ? wanted : p.inner;
    float* sum = static_cast<float*>(std::malloc(size_t(p.n * width) * sizeof(float)));
    if (!sum) return call.fail("no memory for the sums of %lld rows", (long long)p.n);
    for (int64_t first = 0; first < p.inner; first += width) {
        const int64_t cols = width < p.inner - first ? width : p.inner - first;
        std::memset(sum, 0, size_t(p.n * width) * sizeof(float));
        scatter_columns(call, sum, width, dy + first, index + first, cols);
        for (int64_t r = 0; r < p.n; ++r)
            for (int64_t i = 0; i < cols; ++i)
                dx[r * p.inner + first + i] = bf16(sum[r * width + i]);
    }
    std::free(sum);
}

template <class T, class I> void scatter_tile(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    T* dx = call.operand<T>(0);
    const T* dy = call.input<T>(1);
    const I* index = call.input<I>(2);
    if (p.n * p.inner == 0) return;
    std::memset(static_cast<void*>(dx), 0, size_t(p.outer * p.n * p.inner) * sizeof(T));
    for (int64_t o = 0; o < p.outer; ++o) {
        if constexpr (std::is_same_v<T, bf16>)
            scatter_rounded(call, dx, dy, index);
        else
            scatter_columns(call, dx, p.inner, dy, index, p.inner);
        dx += p.n * p.inner;
        dy += p.m * p.inner;
        index += p.m * p.inner;
    }
}

void scatter_add(const KernelCall& call) {
    visit_any(call.dtype, [&]<class T>(T*) {
        visit_index(Dtype(call.get<nn_gather_params>().index_dtype),
                    [&]<class I>(I*) { scatter_tile<T, I>(call); });
    });
}

NN_IMPLEMENT(gather, scatter_add);

}  // namespace
}  // namespace nn::NN_TARGET
