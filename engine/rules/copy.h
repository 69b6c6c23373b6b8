// The tile rules that move data: retiling, casts, fills, and copies of regions. Rules and ops
// retile operands with different cuts, so every op works for every tiling.
#pragma once
#include "engine/tile/tensor.h"

namespace nn {

// An absent tensor stays absent in retile and whole_tensor.
Tensor retile(const Tensor& x, const Grid& grid);           // x itself if it has this grid
Tensor recut(const Tensor& x, int axis, const Cuts& cuts);  // one axis
Tensor whole_axis(const Tensor& x, int axis);
Tensor whole_tensor(const Tensor& x);
Tensor cast(const Tensor& x, Dtype dtype);                      // x itself if it has the dtype
void cast_into(const Tensor& dst, const Tensor& src);           // same cuts
void fill(const Tensor& x, double value, int32_t scalar = -1);  // which tasks read, if given
void copy_into(const Tensor& dst, const Tensor& src);           // same shape and dtype
Tensor copied(const Tensor& x, const Grid& grid);               // always a copy

// dst[dst_start + i] = src[j], where j[a] = src_start[a] + i[k] for the k with from[k] == a. i runs
// over `extent`, in the order of dst's axes; from[k] is the axis of src that axis k of dst follows,
// or -1 if src is broadcast along it.
struct Region {
    Dims dst_start, src_start, extent;
    std::vector<int> from;
};
Region whole_region(const Dims& shape);
void copy_region(const Tensor& dst, const Tensor& src, const Region& region);

}  // namespace nn
