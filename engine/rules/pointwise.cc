#include "engine/rules/pointwise.h"

#include <algorithm>
#include <cstddef>

#include "engine/base/error.h"
#include "engine/graph/builder.h"
#include "engine/rules/copy.h"
#include "kernels/params/pointwise.h"

namespace nn {
namespace {

// The grid of a broadcast result: every axis is cut as in the first operand with its full size.
Grid broadcast_grid(const Dims& shape, const std::vector<TensorOrNumber>& operands) {
    Grid grid = Grid::whole(shape);
    for (size_t axis = 0; axis < shape.size(); ++axis)
        for (const TensorOrNumber& o : operands) {
            const size_t extra = o.tensor ? shape.size() - o.tensor.rank() : shape.size();
            if (axis < extra || o.tensor.shape()[axis - extra] != shape[axis]) continue;
            grid.axes[axis] = o.tensor.grid().axes[axis - extra];
            break;
        }
    return grid;
}

// The operand, cut like the result on the axes that are not broadcast.
Tensor cut_alike(const Tensor& x, const Grid& grid) {
    Grid mine = x.grid();
    const size_t extra = grid.rank() - x.rank();
    for (size_t axis = 0; axis < x.rank(); ++axis)
        if (x.shape()[axis] == grid.axes[axis + extra].back())
            mine.axes[axis] = grid.axes[axis + extra];
    return retile(x, mine);
}

int64_t broadcast_tile(const Tensor& x, const Dims& index) {
    Dims mine;
    const size_t extra = index.size() - x.rank();
    for (size_t axis = 0; axis < x.rank(); ++axis)
        mine.push_back(x.grid().tiles(axis) == 1 ? 0 : index[axis + extra]);
    return x.grid().number(mine);
}

// Strides of an operand's tile along the axes of the result's tile: 0 where it is broadcast.
void fill_strides(const Block& block, const Dims& extent, int64_t* strides) {
    const Dims own = row_major_strides(block.extent);
    const size_t extra = extent.size() - own.size();
    for (size_t axis = 0; axis < extent.size(); ++axis)
        strides[axis] = axis < extra || block.extent[axis - extra] == 1 ? 0 : own[axis - extra];
}

}  // namespace

Tensor pointwise(const char* kernel, Dtype kernel_dtype, Dtype out,
                 const std::vector<TensorOrNumber>& operands) {
    Dims shape;
    for (const TensorOrNumber& o : operands)
        if (o.tensor) {
            const Dims before = shape;
            if (!broadcast(before, o.tensor.shape(), &shape))
                fail(
                    "%s: shapes %s and %s do not broadcast: sizes must be equal or 1, counted from "
                    "the last axis",
                    current_op(), to_string(before).c_str(), to_string(o.tensor.shape()).c_str());
        }
    const Tensor result(broadcast_grid(shape, operands), out);
    pointwise_into(result, kernel, kernel_dtype, operands);
    return result;
}

void pointwise_into(const Tensor& result, const char* kernel, Dtype kernel_dtype,
                    const std::vector<TensorOrNumber>& operands) {
    const Dims& shape = result.shape();
    const Grid& grid = result.grid();
    std::vector<TensorOrNumber> cut = operands;
    for (TensorOrNumber& o : cut)
        if (o.tensor) o.tensor = cut_alike(o.tensor, grid);
    for (int64_t i = 0; i < result.tiles(); ++i) {
        const Block block = result.block(i);
        const Dims index = grid.index(i);
        nn_pointwise_params params{};
        params.ndim = int64_t(shape.size());
        std::copy(block.extent.begin(), block.extent.end(), params.extent);
        TaskBuilder builder = task(kernel, kernel_dtype);
        builder.use(writes(result.tile(i)));
        for (size_t k = 0; k < cut.size(); ++k) {
            if (!cut[k].tensor) {
                params.scalar_mask |= 1 << k;
                params.scalar[k] = cut[k].number;
                builder.use(absent());
                if (cut[k].scalar >= 0)
                    builder.patch(
                        {{Patch::scalar, int32_t(offsetof(nn_pointwise_params, scalar) + 8 * k),
                          cut[k].scalar}});
                continue;
            }
            const int64_t from = broadcast_tile(cut[k].tensor, index);
            fill_strides(cut[k].tensor.block(from), block.extent, params.stride[k]);
            builder.use(reads(cut[k].tensor.tile(from)));
        }
        builder.params(params).emit(i, block.extent, 1);
    }
}

Tensor added_to(const Tensor& given, const Tensor& sum) {
    if (!given || !sum || given.identity() == sum.identity()) return sum;
    pointwise_into(given, "add", given.dtype(), {given, sum});
    return given;
}

void set_position(nn_random_params& p, const Block& tile, const Dims& whole) {
    p.ndim = int64_t(whole.size());
    std::ranges::copy(tile.extent, p.extent);
    std::ranges::copy(tile.start, p.start);
    std::ranges::copy(whole, p.whole);
}

}  // namespace nn
