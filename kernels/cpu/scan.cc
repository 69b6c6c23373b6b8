// Running sums and products along the middle axis of (outer, n, inner). Those of f32 are kept in
// double, those of bf16 in float.
#include "kernels/params/scan.h"

#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t max_cols = 256;  // columns scanned at a time where inner > 1

enum Kind { sum, product };

template <Kind kind, class A> A combine(A a, A b) { return kind == sum ? a + b : a * b; }

template <Kind kind, class T> void scan_tile(const KernelCall& call) {
    using Y = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    using Total = std::conditional_t<std::is_same_v<T, float>, double, Acc<T>>;
    const auto& p = call.get<nn_scan_params>();
    alignas(64) Total total[max_cols];
    const int64_t step = p.reverse ? -p.inner : p.inner;
    for (int64_t o = 0; o < p.outer; ++o)
        for (int64_t c = 0; c < p.inner; c += max_cols) {
            const int64_t cols = std::min(max_cols, p.inner - c);
            const int64_t start = (p.reverse ? (o + 1) * p.n - 1 : o * p.n) * p.inner + c;
            const T* x = call.input<T>(1) + start;
            Y* y = call.operand<Y>(0) + start;
            row_fill(total, cols, Total(kind == sum ? 0 : 1));
            if (cols == 1) {
                Total all = total[0];
                for (int64_t j = 0; j < p.n; ++j) {
                    all = combine<kind>(all, Total(Acc<T>(x[j * step])));
                    y[j * step] = Y(all);
                }
                continue;
            }
            for (int64_t j = 0; j < p.n; ++j, x += step, y += step)
                simd_for(cols, [&](int64_t i) {
                    total[i] = combine<kind>(total[i], Total(Acc<T>(x[i])));
                    y[i] = Y(total[i]);
                });
        }
}

void scan(const KernelCall& call) {
    visit_any(call.dtype, [&]<class T>(T*) {
        if (call.get<nn_scan_params>().kind == sum)
            scan_tile<sum, T>(call);
        else
            scan_tile<product, T>(call);
    });
}

NN_IMPLEMENT(scan);

}  // namespace
}  // namespace nn::NN_TARGET
