// gather: y[o, j, i] = x[o, index[o, j, i], i], its adjoint scatter_add, and scatter, which
// overwrites: the last j wins. An index out of range fails the call; gather then reads 0, and the
// others change nothing.
#include "kernels/params/gather.h"

#include <cstdlib>

#include "kernels/cpu/cpu.h"

namespace nn::NN_TARGET {
namespace {

bool in_range(const KernelCall& call, int64_t index, int64_t n) {
    if (index >= 0 && index < n) return true;
    call.fail("index %lld is outside [0,%lld)", (long long)index, (long long)n);
    return false;
}

// Copies `inner` elements of row `index`, or sets them to 0.
template <class T> void gather_run(const KernelCall& call, T* y, const T* x, int64_t index) {
    const auto& p = call.get<nn_gather_params>();
    const bool valid = in_range(call, index, p.n);
    const T* from = valid ? x + index * p.inner : x;
    simd_for(p.inner, [=](int64_t i) { y[i] = valid ? from[i] : T(0); });
}

void gather(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    const Indices index(call, 2, p.index_dtype);
    visit_any(call.dtype, [&]<class T>(T*) {
        T* y = call.operand<T>(0);
        const T* x = call.input<T>(1);
        int64_t at = 0;
        for (int64_t o = 0; o < p.outer; ++o, x += p.n * p.inner)
            for (int64_t j = 0; j < p.m; ++j) {
                if (p.shared) {
                    gather_run(call, y + at, x, index[j]);
                    at += p.inner;
                    continue;
                }
                for (int64_t i = 0; i < p.inner; ++i, ++at)
                    y[at] = in_range(call, index[at], p.n) ? x[index[at] * p.inner + i] : T(0);
            }
    });
}

// Adds dy to sum[row, i], or overwrites it, for columns [first, first + cols) of slice o; `pitch`
// is sum's row length.
template <bool adds, class A, class T>
void scatter_columns(const KernelCall& call, A* sum, int64_t pitch, int64_t o, int64_t first,
                     int64_t cols) {
    const auto& p = call.get<nn_gather_params>();
    const Indices index(call, 2, p.index_dtype);
    const T* dy = call.input<T>(1);
    for (int64_t j = 0; j < p.m; ++j) {
        const int64_t at = (o * p.m + j) * p.inner + first;
        for (int64_t i = 0; i < cols; ++i) {
            const int64_t row = index[p.shared ? j : at + i];
            if (!in_range(call, row, p.n)) continue;
            A& to = sum[row * pitch + i];
            to = adds ? A(to + A(dy[at + i])) : A(dy[at + i]);
        }
    }
}

// bfloat16 loses small terms of a large sum, so some columns at a time are summed in float.
void scatter_rounded(const KernelCall& call, bf16* dx, int64_t o) {
    const auto& p = call.get<nn_gather_params>();
    const int64_t width = std::min((int64_t(1) << 18) / (p.n + 1) + 1, p.inner);
    float* sum = static_cast<float*>(std::malloc(size_t(p.n * width) * sizeof(float)));
    if (!sum) return call.fail("no memory for the sums of %lld rows", (long long)p.n);
    for (int64_t first = 0; first < p.inner; first += width) {
        const int64_t cols = std::min(width, p.inner - first);
        std::memset(sum, 0, size_t(p.n * width) * sizeof(float));
        scatter_columns<true, float, bf16>(call, sum, width, o, first, cols);
        for (int64_t r = 0; r < p.n; ++r)
            for (int64_t i = 0; i < cols; ++i)
                dx[r * p.inner + first + i] = bf16(sum[r * width + i]);
    }
    std::free(sum);
}

void scatter_add(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    const int64_t slice = p.n * p.inner;
    if (slice == 0) return;
    visit_any(call.dtype, [&]<class T>(T*) {
        T* dx = call.operand<T>(0);
        std::memset(static_cast<void*>(dx), 0, size_t(p.outer * slice) * sizeof(T));
        for (int64_t o = 0; o < p.outer; ++o, dx += slice) {
            if constexpr (std::is_same_v<T, bf16>)
                scatter_rounded(call, dx, o);
            else
                scatter_columns<true, T, T>(call, dx, p.inner, o, 0, p.inner);
        }
    });
}

void scatter(const KernelCall& call) {
    const auto& p = call.get<nn_gather_params>();
    visit_any(call.dtype, [&]<class T>(T*) {
        for (int64_t o = 0; o < p.outer; ++o)
            scatter_columns<false, T, T>(call, call.operand<T>(0) + o * p.n * p.inner, p.inner, o,
                                         0, p.inner);
    });
}

NN_IMPLEMENT(gather, scatter, scatter_add);

}  // namespace
}  // namespace nn::NN_TARGET
