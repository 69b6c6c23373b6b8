// The tile rule of pointwise ops: operands broadcast to a common shape, one task for each tile of
// the result.
#pragma once
#include "engine/tile/tensor.h"
#include "kernels/params/random.h"

namespace nn {

// An operand of a pointwise kernel: a tensor, or a number.
struct TensorOrNumber {
    Tensor tensor;
    double number = 0;
    TensorOrNumber(Tensor t) : tensor(std::move(t)) {}
    TensorOrNumber(double n) : number(n) {}
};
// y = kernel(operands...) broadcast to their common shape, in `kernel_dtype`, written as `out`.
Tensor pointwise(const char* kernel, Dtype kernel_dtype, Dtype out,
                 const std::vector<TensorOrNumber>& operands);
// The same into y, which may be an operand too and must have their common shape.
void pointwise_into(const Tensor& y, const char* kernel, Dtype kernel_dtype,
                    const std::vector<TensorOrNumber>& operands);

// Random numbers depend on a tile's position in the whole tensor.
void set_position(nn_random_params& p, const Block& tile, const Dims& whole);

}  // namespace nn
