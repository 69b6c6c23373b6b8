// The backward sweep of gated linear units, for glu_backward and gemm_dglu.
#pragma once
#include "kernels/call.h"

namespace nn::NN_TARGET {

// dx (rows, 2 cols) for x (rows, 2 cols), whose rows are `ld` apart, and dy (rows, cols), whose
// rows are ld_dy apart; dy may be the left half of dx. dbias, of the accumulator dtype, = (first)
// or += the column sums of dx; it may be nullptr.
struct GluBackward {
    void* dx;
    void* dbias;
    const void *dy, *x;
    int64_t rows, cols, ld, ld_dy;
    int32_t activation;
    bool first;
};
void run_glu_backward(const KernelCall& call, const GluBackward& g);

}  // namespace nn::NN_TARGET
