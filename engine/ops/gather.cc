// PyTorch's gather and its adjoint. The indexed axis is in one tile; the others are cut like the
// index.
#include "kernels/params/gather.h"

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

// Emits a task for every tile; tiles are cut alike except along the axis. The values of index are
// positions along this axis of `like`.
void emit(const char* kernel, const Tensor& y, const Tensor& x, const Tensor& index,
          const Tensor& like, int axis) {
    for (int64_t i = 0; i < y.tiles(); ++i) {
        const Dims extent = index.block(i).extent;
        task(kernel, x.dtype())
            .use({writes(y, i), reads(x, i), reads(index, i)})
            .params(nn_gather_params{product(extent, 0, size_t(axis)), like.dim(axis),
                                     extent[size_t(axis)], product(extent, size_t(axis) + 1),
                                     int32_t(index.dtype())})
            .emit(i, y.block(i).extent);
    }
}

void run_gather(Call& c) {
    const int axis = c.axis("axis", c.in("x").rank());
    const Tensor &x_in = c.in("x"), &index_in = c.in("index");
    Dims expected = x_in.shape();
    if (index_in.rank() == x_in.rank()) expected[size_t(axis)] = index_in.dim(axis);
    c.need(index_in.shape() == expected,
           "x is {}, index is {}; only the size of axis {} may differ", x_in, index_in, axis + 1);
    c.need_ids("index");
    const Tensor index = whole_axis(index_in, axis);
    const Tensor x = retile(x_in, index.grid().with(axis, whole(x_in.dim(axis))));
    const Tensor y(index.grid(), x.dtype());
    emit("gather", y, x, index, x, axis);
    c.result(y);
}

const OpRegistrar gather = Op{
    .doc = R"(gather(x, index) -> y
y[i, j, k] = x[i, index[i, j, k], k] for axis 2 of three, and so on. index holds 0-based positions
(i32 or i64) and has x's shape except along the axis. Error: an index outside the axis.
    nn.tensor{{10, 20, 30}}:gather(nn.tensor({{2, 0}}, {dtype = "i64"}))  --> {{30, 10}})",
    .attributes = {{"axis", "axis", "-1", "the indexed axis"}},
    .samples = {"{x={3,7}, index={3,4,below=7}}", "{x={5,4}, index={2,4,below=5}, axis=1}"},
    .run = run_gather,
    .category = "indexing",
};

void run_scatter_add(Call& c) {
    const Tensor& dy_in = c.in("dy");
    const int axis = c.axis("axis", dy_in.rank());
    c.need_same_shape("dy", "index");
    c.need_ids("index");
    const Tensor dy = whole_axis(dy_in, axis), index = retile(c.in("index"), dy.grid());
    const Tensor x(dy.grid().with(axis, whole(c.integer("size"))), dy.dtype());
    emit("scatter_add", x, dy, index, x, axis);
    c.result(x);
}

const OpRegistrar scatter_add = Op{
    .doc = R"(scatter_add(dy, index) -> x
The adjoint of gather: a tensor with `size` elements along the axis, all 0, to which every
dy[i, j, k] is added at [i, index[i, j, k], k]. Error: an index outside the axis.
    local index = nn.tensor({0, 2, 0}, {dtype = "i64"})
    nn.scatter_add(nn.tensor{1, 2, 3}, index, {size = 4})  --> {4, 0, 2, 0})",
    .attributes = {{"size", "int", "", "size of the axis of the result"},
                   {"axis", "axis", "-1", "the indexed axis"}},
    .samples = {"{dy={3,4}, index={3,4,below=7}, size=7}",
                "{dy={2,4}, index={2,4,below=5}, size=5, axis=1}"},
    .run = run_scatter_add,
    .category = "indexing",
};

}  // namespace
}  // namespace nn
