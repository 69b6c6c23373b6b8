// Gated linear units as tile rules, for glu and for linear layers with one.
#pragma once
#include "engine/ops/op.h"

namespace nn {

// The number of the activation in the attribute `name`: -1 for "none".
int32_t glu_activation(const Call& c, const char* name);
// y (..., n) for x (..., 2 n).
Tensor glu(const Tensor& x, int32_t activation);
// dx and, if `sums`, its column sums over each tile of rows, (tiles of rows, 2 n); x and dy have
// two axes then.
Tensor glu_backward(const Tensor& dy, const Tensor& x, int32_t activation, Tensor* sums);

}  // namespace nn
