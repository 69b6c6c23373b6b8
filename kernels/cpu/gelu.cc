// The backward pass of linear's GELU epilogue: dpre and the bias gradient in one sweep. column_sum
// is the bias gradient of a linear layer without GELU.
#include "kernels/params/gelu.h"

#include "kernels/cpu/row.h"
#include "kernels/math/activations.h"

namespace nn::NN_TARGET {
namespace {

void gelu_bias_backward(const KernelCall& call) {
    const auto& p = call.get<nn_gelu_bias_backward_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        T* dpre = call.operand<T>(0);
        Acc<T>* const dbias = call.operand<Acc<T>>(1);
        const T *dy = call.input<T>(2), *pre = call.input<T>(3);
        if (dbias && p.first) row_fill(dbias, p.cols, Acc<T>(0));
        for (int64_t i = 0; i < p.rows; ++i, dpre += p.cols, dy += p.cols, pre += p.cols) {
            const auto slope = [=](int64_t j) {
                return Acc<T>(dy[j]) * math::gelu_slope(Acc<T>(pre[j]));
            };
            if (dbias)
                simd_for(p.cols, [=](int64_t j) {
                    const Acc<T> d = slope(j);
                    dpre[j] = T(d);
                    dbias[j] += d;
                });
            else
                simd_for(p.cols, [=](int64_t j) { dpre[j] = T(slope(j)); });
        }
    });
}

// Four rows at a time, to load and store y once for them.
void column_sum(const KernelCall& call) {
    const auto& p = call.get<nn_column_sum_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        A* const y = call.operand<A>(0);
        const T* x = call.input<T>(1);
        if (p.first) row_fill(y, p.cols, A(0));
        int64_t i = 0;
        for (; i + 4 <= p.rows; i += 4, x += 4 * p.cols) {
            const T *b = x + p.cols, *c = x + 2 * p.cols, *d = x + 3 * p.cols;
            simd_for(p.cols, [=](int64_t j) { y[j] += (A(x[j]) + A(b[j])) + (A(c[j]) + A(d[j])); });
        }
        for (; i < p.rows; ++i, x += p.cols) simd_for(p.cols, [=](int64_t j) { y[j] += A(x[j]); });
    });
}

NN_IMPLEMENT(gelu_bias_backward, column_sum);

}  // namespace
}  // namespace nn::NN_TARGET
