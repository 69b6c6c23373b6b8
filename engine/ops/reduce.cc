// Reductions over axes.
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

const Attribute axes_attribute = {"axis", "axes", "nil",
                                  "an axis or a list of them; all when not given"};
const Attribute keepdim_attribute = {"keepdim", "bool", "false", "keep reduced axes with size 1"};

template <ReduceKind kind> void run_reduce(Call& c) {
    const Tensor& x = c.in("x");
    c.result_of(x, reduce(x, c.axes("axis", x.rank()), kind, c.flag("keepdim")));
}

const OpRegistrar sum = Op{
    .name = "sum",
    .doc =
        "sum(x, {axis, keepdim=false}) -> y\nSum over axes; integers and booleans add up in i64."
        "\n    x:sum {axis = 2}  --> {6, 15}",
    .inputs = {"x"},
    .attributes = {axes_attribute, keepdim_attribute},
    .samples = {"{x={3,5}}", "{x={3,5,4}, axis=2}", "{x={3,5,4}, axis={1,3}, keepdim=true}"},
    .run = run_reduce<reduce_sum>,
    .category = "reductions",
    .kernels = {"reduce"},
};

const OpRegistrar mean = Op{
    .name = "mean",
    .doc =
        "mean(x, {axis, keepdim=false}) -> y\nArithmetic mean over axes, of floats."
        "\n    x:mean {axis = 1}  --> {2.5, 3.5, 4.5}",
    .inputs = {"x"},
    .attributes = {axes_attribute, keepdim_attribute},
    .samples = {"{x={3,5}}", "{x={3,5,4}, axis=-1}"},
    .run =
        [](Call& c) {
            c.need_float("x");
            const Tensor& x = c.in("x");
            const std::vector<int> axes = c.axes("axis", x.rank());
            double count = 1;
            for (int axis : axes) count *= double(x.dim(axis));
            c.result_of(x, reduce(x, axes, reduce_sum, c.flag("keepdim"), 1 / count));
        },
    .category = "reductions",
    .kernels = {"reduce"},
};

const OpRegistrar amax = Op{
    .name = "max",
    .doc =
        "max(x, {axis, keepdim=false}) -> y\nLargest element over axes; NaN wins. Ties share the "
        "gradient equally."
        "\n    x:max {axis = 2}  --> {3, 6}",
    .inputs = {"x"},
    .attributes = {axes_attribute, keepdim_attribute},
    .samples = {"{x={3,5}}", "{x={3,5,4}, axis=2}"},
    .run = run_reduce<reduce_max>,
    .category = "reductions",
    .kernels = {"reduce"},
};

const OpRegistrar amin = Op{
    .name = "min",
    .doc =
        "min(x, {axis, keepdim=false}) -> y\nSmallest element over axes; NaN wins. Ties share the "
        "gradient equally."
        "\n    x:min {axis = 2}  --> {1, 4}",
    .inputs = {"x"},
    .attributes = {axes_attribute, keepdim_attribute},
    .samples = {"{x={3,5}}", "{x={3,5,4}, axis=1}"},
    .run = run_reduce<reduce_min>,
    .category = "reductions",
    .kernels = {"reduce"},
};

const OpRegistrar prod = Op{
    .name = "prod",
    .doc =
        "prod(x, {axis, keepdim=false}) -> y\nProduct over axes. The gradient is y / x, so it "
        "needs elements other than 0."
        "\n    nn.tensor{2, 3, 4}:prod()  --> 24",
    .inputs = {"x"},
    .attributes = {axes_attribute, keepdim_attribute},
    .samples = {"{x={3,5,lo=0.5,hi=1.5}}", "{x={3,5,4,lo=0.5,hi=1.5}, axis=2}"},
    .run = run_reduce<reduce_product>,
    .category = "reductions",
    .kernels = {"reduce"},
};

// Index of the largest or smallest element along one axis; tiles are visited in order, so the first
// of equals wins.
template <ReduceKind kind> void run_arg(Call& c) {
    const Tensor& x = c.in("x");
    c.need(x.rank() > 0, "x needs at least one axis");
    const int axis = c.axis("axis", x.rank());
    Grid grid = x.grid();
    grid.axes[size_t(axis)] = whole(1);
    Tensor index(grid, Dtype::i64), value(grid, x.dtype());
    for (int64_t i = 0; i < x.tiles(); ++i) {
        Dims at = x.grid().index(i);
        const bool first = at[size_t(axis)] == 0;
        at[size_t(axis)] = 0;
        const int64_t to = grid.number(at);
        const Block block = x.block(i);
        nn_argreduce_params p{product(block.extent, 0, size_t(axis)),
                              block.extent[size_t(axis)],
                              product(block.extent, size_t(axis) + 1),
                              block.start[size_t(axis)],
                              kind,
                              first};
        task("argreduce", x.dtype())
            .use(first ? writes(index.tile(to)) : updates(index.tile(to)))
            .use(first ? writes(value.tile(to)) : updates(value.tile(to)))
            .use(reads(x.tile(i)))
            .params(p)
            .tile(i, block.extent)
            .emit();
    }
    if (c.flag("keepdim")) return c.result(index);
    Dims shape = x.shape();
    shape.erase(shape.begin() + axis);
    c.result(reshape(index, shape));
}

const OpRegistrar argmax = Op{
    .name = "argmax",
    .doc =
        "argmax(x, {axis=-1, keepdim=false}) -> index\n0-based position (it is data, like a token "
        "id) of the first largest "
        "element along an axis, as i64."
        "\n    nn.tensor{{1, 5, 2}, {7, 0, 7}}:argmax()  --> {1, 0}",
    .inputs = {"x"},
    .attributes = {{"axis", "axis", "-1", "the axis to search"}, keepdim_attribute},
    .samples = {"{x={3,7}}", "{x={3,5,4}, axis=2, keepdim=true}"},
    .no_gradient = "an index is piecewise constant",
    .run = run_arg<reduce_max>,
    .category = "reductions",
    .kernels = {"argreduce"},
};

const OpRegistrar argmin = Op{
    .name = "argmin",
    .doc =
        "argmin(x, {axis=-1, keepdim=false}) -> index\n0-based position of the first smallest "
        "element along an axis, as i64."
        "\n    nn.tensor{{1, 5, 2}, {7, 0, 7}}:argmin()  --> {0, 1}",
    .inputs = {"x"},
    .attributes = {{"axis", "axis", "-1", "the axis to search"}, keepdim_attribute},
    .samples = {"{x={3,7}}"},
    .no_gradient = "an index is piecewise constant",
    .run = run_arg<reduce_min>,
    .category = "reductions",
    .kernels = {"argreduce"},
};

}  // namespace
}  // namespace nn
