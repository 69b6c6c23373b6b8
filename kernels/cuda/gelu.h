// The backward sweep of GELU on a GPU: for its own kernel, and for products whose epilogue cuBLASLt
// does not have.
#pragma once
#include "kernels/kernel.h"

namespace nn::NN_TARGET {

// dpre = dy GELU'(pre) for matrices whose rows lie `ld` apart; dpre may be dy. dbias, of the
// accumulator dtype, = (first) or += the column sums of that; nullptr where they are not wanted.
struct GeluBackward {
    void* dpre;
    void* dbias;
    const void *dy, *pre;
    int64_t rows, cols, ld;
    bool first;
};
void gelu_backward(const KernelCall& call, const GeluBackward& g);

}  // namespace nn::NN_TARGET
