// Ops that rearrange elements. Views share tiles if the grids allow it, and copy otherwise
// (engine/tile/tensor.h).
#include <algorithm>

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

void run_reshape(Call& c) {
    const Tensor& x = c.in("x");
    const Dims given = c.ints("shape");
    Dims shape = given;
    const int64_t unknown = std::count(shape.begin(), shape.end(), -1);
    c.need(unknown <= 1, "shape {} has more than one -1", shape);
    const int64_t known = product(shape) * (unknown ? -1 : 1);
    if (unknown && known > 0)
        std::replace(shape.begin(), shape.end(), int64_t(-1), x.count() / known);
    const bool positive = std::ranges::all_of(shape, [](int64_t size) { return size > 0; });
    c.need(positive && product(shape) == x.count(),
           "x of shape {} ({} elements) cannot have shape {}", x, x.count(), given);
    c.result_of(x, reshape(x, shape));
}

const OpRegistrar reshape_op = Op{
    .doc = R"(reshape(x) -> y
The same elements in row-major order under another shape. One size may be -1: it is computed from
the others. Error: another number of elements.
    x:reshape(3, -1)  --> {{1, 2}, {3, 4}, {5, 6}})",
    .attributes = {{"shape", "ints", "", "the new sizes; -1 for the one to compute"}},
    .samples = {"{x={4,6}, shape={2,2,6}}", "{x={3,4,5}, shape={12,-1}}", "{x={3,4,5}, shape={60}}",
                "{x={6,4}, shape={3,8}}"},
    .run = run_reshape,
    .category = "views",
};

void run_permute(Call& c) {
    const Tensor& x = c.in("x");
    const Dims given = c.ints("order");
    c.axes("order", x.rank());  // checks the range, and that no axis is repeated
    c.need(given.size() == x.rank(), "order names {} axes; x of shape {} has {}", given.size(), x,
           x.rank());
    std::vector<int> order;
    for (int64_t axis : given) order.push_back(int(axis > 0 ? axis - 1 : axis + int64_t(x.rank())));
    c.result(permute(x, order));
}

const OpRegistrar permute_op = Op{
    .doc = R"(permute(x) -> y
Axis i of y is axis order[i] of x.
    x:permute(2, 1)  --> {{1, 4}, {2, 5}, {3, 6}})",
    .attributes = {{"order", "ints", "", "every axis of x once"}},
    .samples = {"{x={3,4,5}, order={3,1,2}}", "{x={3,4}, order={2,1}}",
                "{x={2,3,4,5}, order={1,3,2,4}}"},
    .run = run_permute,
    .category = "views",
};

void run_slice(Call& c) {
    const Tensor& x = c.in("x");
    const int axis = c.axis("axis", x.rank());
    const int64_t size = x.dim(axis);
    const auto from_end = [&](int64_t i) { return i < 0 ? i + size + 1 : i; };
    const int64_t first = from_end(c.integer("first")), last = from_end(c.integer("last"));
    c.need(1 <= first && first <= last && last <= size,
           "elements {} to {} are not in an axis of size {}; they count from 1 (x is {})",
           c.integer("first"), c.integer("last"), size, x);
    // A copy counts as a view too, so that changing it in place is an error for every tiling.
    c.result(slice(x, axis, first - 1, last - first + 1).refreshed_view());
}

const OpRegistrar slice_op = Op{
    .doc = R"(slice(x) -> y
Elements first to last of an axis, both included. Indices count from 1; negative ones count from the
end. Error: an index outside the axis.
    x:slice(2, 2, 3)  --> {{2, 3}, {5, 6}})",
    .attributes = {{"axis", "axis", "", "the axis to cut"},
                   {"first", "int", "", "first index kept"},
                   {"last", "int", "-1", "last index kept"}},
    .samples = {"{x={7,4}, axis=1, first=2, last=5}", "{x={3,9}, axis=-1, first=-4}"},
    .run = run_slice,
    .category = "views",
};

void run_cat(Call& c) {
    const Tensor& first = c.all()[0];
    const int axis = c.axis("axis", first.rank());
    Grid grid = first.grid();
    Cuts& cuts = grid.axes[size_t(axis)];
    for (size_t i = 1; i < c.all().size(); ++i) {
        const Tensor& t = c.all()[i];
        Dims expected = first.shape();
        if (t.rank() == first.rank()) expected[size_t(axis)] = t.dim(axis);
        c.need(t.shape() == expected && t.dtype() == first.dtype(),
               "tensor {} is {} {}, tensor 1 is {} {}; only the size of axis {} may differ", i + 1,
               t.dtype(), t, first.dtype(), first, axis + 1);
        const int64_t base = cuts.back();
        const Cuts& mine = t.grid().axes[size_t(axis)];
        for (size_t k = 1; k < mine.size(); ++k) cuts.push_back(base + mine[k]);
    }
    Tensor y(grid, first.dtype());
    int64_t at = 0;
    for (const Tensor& t : c.all()) {
        Region region = whole_region(t.shape());
        region.dst_start[size_t(axis)] = at;
        copy_region(y, t, region);
        at += t.dim(axis);
    }
    c.result(y);
}

const OpRegistrar cat = Op{
    .doc = R"(cat(tensors*) -> y
The tensors one after the other along an axis. Their other sizes must be equal.
    nn.cat({nn.zeros(1, 2), nn.ones(2, 2)}, {axis = 1})  --> {{0, 0}, {1, 1}, {1, 1}})",
    .attributes = {{"axis", "axis", "1", "the axis to join along"}},
    .samples = {"{tensors={{3,4},{2,4}}, axis=1}", "{tensors={{3,4},{3,1},{3,2}}, axis=-1}"},
    .run = run_cat,
    .category = "views",
};

void run_expand(Call& c) {
    const Tensor& x = c.in("x");
    Dims shape = c.ints("shape"), both;
    c.need(broadcast(x.shape(), shape, &both) && both == shape,
           "x of shape {} does not broadcast to {}", x, shape);
    c.result_of(x, expand(x, shape));
}

const OpRegistrar expand_op = Op{
    .doc = R"(expand(x) -> y
x broadcast to a shape, as in arithmetic. Error: a size of x that is neither 1 nor the shape's.
    nn.tensor{{1}, {2}}:expand(2, 3)  --> {{1, 1, 1}, {2, 2, 2}})",
    .attributes = {{"shape", "ints", "", "the sizes to broadcast to"}},
    .samples = {"{x={3,1}, shape={2,3,4}}", "{x={4}, shape={3,4}}"},
    .run = run_expand,
    .category = "views",
};

const OpRegistrar to = Op{
    .doc = R"(to(x) -> y
x in another dtype. Floats become integers by truncation towards zero, and bool by x ~= 0.
    nn.tensor{1.7, -1.7}:to "i32"  --> {1, -1})",
    .attributes = {{"dtype", "dtype", "", "f32, f64, bf16, i32, i64, u8 or bool"}},
    .samples = {"{x={3,5}, dtype='f64'}", "{x={3,5}, dtype='bf16'}", "{x={3,5}, dtype='i32'}"},
    .run = [](Call& c) { c.result_of(c.in("x"), cast(c.in("x"), c.dtype("dtype"))); },
    .category = "views",
};

const OpRegistrar clone = Op{
    .doc = R"(clone(x) -> y
A copy with tiles of its own.
    x:clone():fill_(0)
    x:sum()  --> 21)",
    .samples = {"{x={3,5}}"},
    .run = [](Call& c) { c.result(copied(c.in("x"), c.in("x").grid())); },
    .category = "views",
};

}  // namespace
}  // namespace nn
