// Products by cuBLASLt: their descriptions, and the choice among its algorithms.
// cuBLASLt is column-major: our row-major C (m, n) is its C^T (n, m) = op(B)^T op(A)^T, so A and B
// are exchanged, and our bias is its bias of rows.
#pragma once
#include "kernels/call.h"

namespace nn::NN_TARGET {

// The operands of a gemm; bias and aux only if its epilogue uses them.
struct Operands {
    void* c;
    const void *a, *b, *bias;
    void* aux;
};

enum class Done { nothing, product, all };  // nothing: the call has failed; all: the epilogue too

// Runs the product of a call with nn_gemm_params and m, n, k > 0, and if `fuse`, bias and GELU as
// cuBLASLt's epilogue where it supports them.
Done run_product(const KernelCall& call, const Operands& o, bool fuse);

}  // namespace nn::NN_TARGET
