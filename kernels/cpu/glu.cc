// Gated linear units, y = f(gate) up, and their gradient.
#include "kernels/cpu/glu.h"

namespace nn::NN_TARGET {
namespace {

void glu(const KernelCall& call) {
    const auto& p = call.get<nn_glu_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_glu(p.activation, [&]<class Gate>(Gate) {
            using A = Acc<T>;
            T* y = call.operand<T>(0);
            const T* gate = call.input<T>(1);
            for (int64_t i = 0; i < p.rows; ++i, y += p.cols, gate += 2 * p.cols) {
                const T* up = gate + p.cols;
                simd_for(p.cols, [=](int64_t j) { y[j] = T(Gate::value(A(gate[j])) * A(up[j])); });
            }
        });
    });
}

void glu_backward(const KernelCall& call) {
    const auto& p = call.get<nn_glu_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        const int64_t n = p.cols;
        T* dx = call.operand<T>(0);
        Acc<T>* const dbias = call.operand<Acc<T>>(1);
        const T *dy = call.input<T>(2), *x = call.input<T>(3);
        if (dbias && p.first) row_fill(dbias, 2 * n, Acc<T>(0));
        for (int64_t i = 0; i < p.rows; ++i, dy += n, x += 2 * n, dx += 2 * n)
            glu_backward_row(p.activation, dy, x, n, n, dx, dbias);
    });
}

NN_IMPLEMENT(glu, glu_backward);

}  // namespace
}  // namespace nn::NN_TARGET
