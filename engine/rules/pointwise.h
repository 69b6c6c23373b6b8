// The tile rule of pointwise ops: operands broadcast to a common shape, one task for each tile of
// the result.
#pragma once
#include "engine/tile/tensor.h"
#include "kernels/params/random.h"

namespace nn {

// An operand of a pointwise kernel: a tensor, or a number, which tasks read from a scalar if one is
// given.
struct TensorOrNumber {
    Tensor tensor;
    double number = 0;
    int32_t scalar = -1;
    TensorOrNumber(Tensor t) : tensor(std::move(t)) {}
    TensorOrNumber(double n, int32_t scalar = -1) : number(n), scalar(scalar) {}
};
// y = kernel(operands...) broadcast to their common shape, in `kernel_dtype`, written as `out`.
Tensor pointwise(const char* kernel, Dtype kernel_dtype, Dtype out,
                 const std::vector<TensorOrNumber>& operands);
// The same into y, which may be an operand too and must have their common shape.
void pointwise_into(const Tensor& y, const char* kernel, Dtype kernel_dtype,
                    const std::vector<TensorOrNumber>& operands);
inline bool is_one_tile(const Tensor& t) { return t && t.tiles() == 1; }
// The gradient `sum`, or the given one to which it is added, if that is another tensor.
Tensor added_to(const Tensor& given, const Tensor& sum);

// Random numbers depend on a tile's position in the whole tensor.
void set_position(nn_random_params& p, const Block& tile, const Dims& whole);

}  // namespace nn
