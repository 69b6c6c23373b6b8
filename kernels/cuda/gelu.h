// The backward sweep of GELU, for gelu_bias_backward and products whose epilogue cuBLASLt lacks.
#pragma once
#include "kernels/call.h"

namespace nn::NN_TARGET {

// dpre = dy GELU'(pre) for matrices whose rows are `ld` apart; dpre may be dy. dbias, of the
// accumulator dtype, = (first) or += the column sums of that; it may be nullptr.
struct GeluBackward {
    void* dpre;
    void* dbias;
    const void *dy, *pre;
    int64_t rows, cols, ld;
    bool first;
};
void gelu_backward(const KernelCall& call, const GeluBackward& g);

}  // namespace nn::NN_TARGET
