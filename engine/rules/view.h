// The tile rules of views, which share tiles if the grids allow it and are copies otherwise.
#pragma once
#include <vector>

#include "engine/tile/tensor.h"

namespace nn {

// Shares tiles if each stays contiguous.
Tensor reshape(const Tensor& x, const Dims& shape);
Tensor as_rows(const Tensor& x);  // (..., n) as (rows, n)
Tensor slice(const Tensor& x, int axis, int64_t start, int64_t length);
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor expand(const Tensor& x, const Dims& shape);

}  // namespace nn
