// Gated linear units, y = f(gate) up, and their gradient.
#include "kernels/glu.h"

#include "kernels/cpu/row.h"

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
        visit_glu(p.activation, [&]<class Gate>(Gate) {
            using A = Acc<T>;
            const int64_t n = p.cols;
            T* dgate = call.operand<T>(0);
            A* const dbias = call.operand<A>(1);
            const T *dy = call.input<T>(2), *gate = call.input<T>(3);
            if (dbias && p.first) row_fill(dbias, 2 * n, A(0));
            for (int64_t i = 0; i < p.rows; ++i, dy += n, gate += 2 * n, dgate += 2 * n) {
                const T* up = gate + n;
                T* dup = dgate + n;
                simd_for(n, [=](int64_t j) {
                    const A d = A(dy[j]), g = A(gate[j]);
                    dgate[j] = T(d * A(up[j]) * Gate::slope(g));
                    dup[j] = T(d * Gate::value(g));
                });
                if (dbias) simd_for(2 * n, [=](int64_t j) { dbias[j] += A(dgate[j]); });
            }
        });
    });
}

NN_IMPLEMENT(glu, glu_backward);

}  // namespace
}  // namespace nn::NN_TARGET
