// The backward pass of gated linear units for a part of a row: of the sweep glu_backward, or of the
// epilogue of a product, gemm_dglu. Both give the same bits for the same dy.
#pragma once
#include "kernels/cpu/row.h"
#include "kernels/glu.h"

namespace nn::NN_TARGET {

// n columns of dgate, and of dup, `cols` behind it; so is up behind gate. dy may be dgate, and has
// its dtype or the accumulator's. dbias, if given, += the rounded gradients.
template <class D, class T, class C>
void glu_backward_row(int32_t activation, const D* dy, const T* gate, int64_t cols, int64_t n,
                      C* dgate, Acc<T>* dbias) {
    using A = Acc<T>;
    const T* up = gate + cols;
    C* dup = dgate + cols;
    visit_glu(activation, [=]<class Gate>(Gate) {
        simd_for(n, [=](int64_t j) {
            const A d = A(dy[j]), g = A(gate[j]);
            dgate[j] = C(d * A(up[j]) * Gate::slope(g));
            dup[j] = C(d * Gate::value(g));
        });
    });
    if (!dbias) return;
    A* const dup_bias = dbias + cols;
    simd_for(n, [=](int64_t j) {
        dbias[j] += A(dgate[j]);
        dup_bias[j] += A(dup[j]);
    });
}

}  // namespace nn::NN_TARGET
