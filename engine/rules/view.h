// The tile rules of views: they share tiles where the grids allow and are copies where they do not.
#pragma once
#include <vector>

#include "engine/tile/tensor.h"

namespace nn {

// Shares tiles where every tile stays one contiguous run.
Tensor reshape(const Tensor& x, const Dims& shape);
Tensor as_rows(const Tensor& x);  // (..., n) as (rows, n)
Tensor slice(const Tensor& x, int axis, int64_t start, int64_t length);
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor expand(const Tensor& x, const Dims& shape);

}  // namespace nn
