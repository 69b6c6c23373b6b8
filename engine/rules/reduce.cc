#include "engine/rules/reduce.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/graph/builder.h"
#include "engine/rules/copy.h"
#include "engine/rules/view.h"
#include "kernels/params/reduce.h"

namespace nn {
namespace {

struct Group {
    size_t from, to;  // axes [from, to)
};

// Neighbouring axes are reduced together.
std::vector<Group> groups_of(const std::vector<int>& axes) {
    std::vector<Group> groups;
    for (int axis : axes)
        if (!groups.empty() && groups.back().to == size_t(axis))
            ++groups.back().to;
        else
            groups.push_back({size_t(axis), size_t(axis) + 1});
    return groups;
}

// Reduces one group of axes, which stay with size 1.
Tensor reduce_group(const Tensor& x, Group group, ReduceKind kind, double scale) {
    Grid grid = x.grid();
    for (size_t axis = group.from; axis < group.to; ++axis) grid.axes[axis] = whole(1);
    const bool sums = kind == reduce_sum || kind == reduce_product;
    Tensor out(grid, sums ? accumulator(x.dtype()) : x.dtype());
    for (int64_t i = 0; i < x.tiles(); ++i) {
        Dims at = x.grid().index(i);
        bool first = true;
        for (size_t axis = group.from; axis < group.to; ++axis) {
            first &= at[axis] == 0;
            at[axis] = 0;
        }
        const Block block = x.block(i);
        const int64_t to = grid.number(at);
        task("reduce", x.dtype())
            .use({adds(out, to, first), reads(x, i)})
            .params(nn_reduce_params{product(block.extent, 0, group.from),
                                     product(block.extent, group.from, group.to),
                                     product(block.extent, group.to), scale, int32_t(kind), first})
            .emit(i, block.extent, 1);
    }
    return out;
}

}  // namespace

Tensor reduce(const Tensor& x, const std::vector<int>& axes, ReduceKind kind, bool keepdim,
              double scale) {
    Tensor out = x;
    std::vector<Group> groups = groups_of(axes);
    for (size_t g = groups.size(); g-- > 0;)
        out = reduce_group(out, groups[g], kind, g == 0 ? scale : 1);
    if (x.dtype() == Dtype::bf16) out = cast(out, Dtype::bf16);
    return keepdim ? out : drop_axes(out, axes);
}

Tensor drop_axes(const Tensor& x, const std::vector<int>& axes) {
    Dims shape;
    for (size_t axis = 0; axis < x.rank(); ++axis)
        if (std::ranges::find(axes, int(axis)) == axes.end()) shape.push_back(x.shape()[axis]);
    return reshape(x, shape);
}

Tensor rows_of(const Tensor& x) {
    if (x.rank() == 0) fail("%s: needs a tensor of at least one axis", current_op());
    return whole_axis(x, int(x.rank()) - 1);
}

int64_t rows_in(const Tensor& x, int64_t tile) {
    const Block block = x.block(tile);
    return product(block.extent, 0, block.extent.size() - 1);
}

}  // namespace nn
