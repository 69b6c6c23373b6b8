// The backward pass of linear's GELU epilogue: dpre and the bias gradient in one sweep. column_sum
// is the bias gradient of a linear layer without GELU.
#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

// dpre, dy, pre: (rows, cols); dbias: (cols) or null.
template <class T>
void gelu_rows(const nn_gelu_bias_backward_params& p, T* dpre, Acc<T>* dbias, const T* dy,
               const T* pre) {
    if (dbias && p.first) row_fill(dbias, p.cols, Acc<T>(0));
    for (int64_t i = 0; i < p.rows; ++i, dpre += p.cols, dy += p.cols, pre += p.cols) {
        if (dbias) {
#pragma omp simd
            for (int64_t j = 0; j < p.cols; ++j) {
                const Acc<T> d = Acc<T>(dy[j]) * math::gelu_slope(Acc<T>(pre[j]));
                dpre[j] = T(d);
                dbias[j] += d;
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < p.cols; ++j)
                dpre[j] = T(Acc<T>(dy[j]) * math::gelu_slope(Acc<T>(pre[j])));
        }
    }
}

void gelu_bias_backward(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) {
        gelu_rows<T>(call.get<nn_gelu_bias_backward_params>(), call.operand<T>(0),
                     call.operand<Acc<T>>(1), call.input<T>(2), call.input<T>(3));
    });
}

// Four rows at a time, to load and store y once for them.
template <class T> void sum_columns(const nn_column_sum_params& p, Acc<T>* y, const T* x) {
    if (p.first) row_fill(y, p.cols, Acc<T>(0));
    int64_t i = 0;
    for (; i + 4 <= p.rows; i += 4, x += 4 * p.cols) {
        const T *a = x, *b = x + p.cols, *c = x + 2 * p.cols, *d = x + 3 * p.cols;
#pragma omp simd
        for (int64_t j = 0; j < p.cols; ++j)
            y[j] += (Acc<T>(a[j]) + Acc<T>(b[j])) + (Acc<T>(c[j]) + Acc<T>(d[j]));
    }
    for (; i < p.rows; ++i, x += p.cols)
#pragma omp simd
        for (int64_t j = 0; j < p.cols; ++j) y[j] += Acc<T>(x[j]);
}

void column_sum(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) {
        sum_columns<T>(call.get<nn_column_sum_params>(), call.operand<Acc<T>>(0), call.input<T>(1));
    });
}

NN_IMPLEMENT(gelu_bias_backward, column_sum);

}  // namespace
}  // namespace nn::NN_TARGET
