// The tile rule of matrix products: one task for each pair of tiles that are multiplied,
// accumulated over the tiles of k in order.
#pragma once
#include "engine/tile/tensor.h"
#include "kernels/params/gemm.h"

namespace nn {

struct MatmulOptions {
    bool trans_a = false, trans_b = false;
    Tensor bias = {};       // (n)
    bool gelu = false;      // with bias: C = GELU(product + bias)
    Tensor* pre = nullptr;  // with gelu: set to product + bias
    Tensor into = {};       // accumulate there instead of into a new tensor
    bool wide = false;      // the result (and `into`) has the accumulator dtype
};
// C = op(A) op(B) over matrices in the last two axes; leading axes must agree.
Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});
// The parameters for one pair of contiguous tiles.
nn_gemm_params gemm_params(int64_t m, int64_t n, int64_t k, const MatmulOptions& options);

}  // namespace nn
