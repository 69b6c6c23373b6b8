// The tile rules of reductions, and of ops over rows, whose last axis is in one tile.
#pragma once
#include "engine/tile/tensor.h"

namespace nn {

enum ReduceKind { reduce_sum, reduce_max, reduce_min, reduce_product };
Tensor reduce(const Tensor& x, const std::vector<int>& axes, ReduceKind kind, bool keepdim,
              double scale = 1);

Tensor drop_axes(const Tensor& x, const std::vector<int>& axes);  // of size 1
Tensor rows_of(const Tensor& x);                                  // with its last axis in one tile
int64_t rows_in(const Tensor& x, int64_t tile);  // product of all extents but the last

}  // namespace nn
