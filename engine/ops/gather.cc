// PyTorch's gather and its adjoint. The searched axis is made whole; the others are cut as the
// index is.
#include "engine/base/error.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

nn_gather_params params_of(const Block& index, const Tensor& x, int axis, Dtype dtype) {
    return {product(index.extent, 0, size_t(axis)), x.dim(axis), index.extent[size_t(axis)],
            product(index.extent, size_t(axis) + 1), int32_t(dtype)};
}

void check_index(const Call& c, const Tensor& x, const Tensor& index, int axis) {
    Dims expected = x.shape();
    if (index.rank() == x.rank()) expected[size_t(axis)] = index.dim(axis);
    c.need(index.shape() == expected, "x is %s, index is %s; only the size of axis %d may differ",
           to_string(x.shape()).c_str(), to_string(index.shape()).c_str(), axis + 1);
    c.need(index.dtype() == Dtype::i32 || index.dtype() == Dtype::i64,
           "index is %s; i32 or i64 is needed", dtype_name(index.dtype()));
}

const OpRegistrar gather = Op{
    .name = "gather",
    .doc =
        "gather(x, index, {axis=-1}) -> y\ny[i, j, k] = x[i, index[i, j, k], k] for axis 2 of "
        "three, and so on; index is 0-based "
        "data of x's shape but for that axis."
        " Error: an index outside the axis."
        "\n    nn.tensor{{10, 20, 30}}:gather(nn.tensor({{2, 0}}, {dtype = \"i64\"}))  --> {{30, "
        "10}}",
    .inputs = {"x", "index"},
    .attributes = {{"axis", "axis", "-1", "the axis that index runs over"}},
    .samples = {"{x={3,7}, index={3,4,below=7}}", "{x={5,4}, index={2,4,below=5}, axis=1}"},
    .run =
        [](Call& c) {
            const Tensor& index_in = c.in("index");
            const int axis = c.axis("axis", c.in("x").rank());
            check_index(c, c.in("x"), index_in, axis);
            const Tensor index = whole_axis(index_in, axis);
            Grid grid = index.grid();
            grid.axes[size_t(axis)] = whole(c.in("x").dim(axis));
            const Tensor x = retile(c.in("x"), grid);
            Tensor y(index.grid(), x.dtype());
            for (int64_t i = 0; i < y.tiles(); ++i)
                task("gather", x.dtype())
                    .use({writes(y.tile(i)), reads(x.tile(i)), reads(index.tile(i))})
                    .params(params_of(index.block(i), x, axis, index.dtype()))
                    .tile(i, y.block(i).extent)
                    .emit();
            c.result(y);
        },
    .category = "indexing",
};

const OpRegistrar scatter_add = Op{
    .name = "scatter_add",
    .doc =
        "scatter_add(dy, index, {size, axis=-1}) -> x\nThe adjoint of gather: zeros with `size` "
        "along the axis, to which every "
        "dy[i, j, k] is added at [i, index[i, j, k], k]."
        " Error: an index outside the axis."
        "\n    local index = nn.tensor({0, 2, 0}, {dtype = \"i64\"})"
        "\n    nn.scatter_add(nn.tensor{1, 2, 3}, index, {size = 4})  --> {4, 0, 2, 0}",
    .inputs = {"dy", "index"},
    .attributes = {{"size", "int", "", "size of the axis of the result"},
                   {"axis", "axis", "-1", "the axis that index runs over"}},
    .samples = {"{dy={3,4}, index={3,4,below=7}, size=7}",
                "{dy={2,4}, index={2,4,below=5}, size=5, axis=1}"},
    .run =
        [](Call& c) {
            const Tensor& dy_in = c.in("dy");
            const int axis = c.axis("axis", dy_in.rank());
            check_index(c, dy_in, c.in("index"), axis);
            c.need(c.in("index").shape() == dy_in.shape(),
                   "dy is %s, index is %s; they must be equal", to_string(dy_in.shape()).c_str(),
                   to_string(c.in("index").shape()).c_str());
            const Tensor dy = whole_axis(dy_in, axis);
            const Tensor index = retile(c.in("index"), dy.grid());
            Grid grid = dy.grid();
            grid.axes[size_t(axis)] = whole(c.integer("size"));
            Tensor x(grid, dy.dtype());
            for (int64_t i = 0; i < x.tiles(); ++i)
                task("scatter_add", dy.dtype())
                    .use({writes(x.tile(i)), reads(dy.tile(i)), reads(index.tile(i))})
                    .params(params_of(index.block(i), x, axis, index.dtype()))
                    .tile(i, x.block(i).extent)
                    .emit();
            c.result(x);
        },
    .category = "indexing",
};

}  // namespace
}  // namespace nn
