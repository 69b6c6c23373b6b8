// Softmax and its relatives over the last axis.
#include "engine/base/error.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

// Row kernels that map tiles of equal shape to one: y = kernel(x, ...).
Tensor map_rows(const char* kernel, const std::vector<Tensor>& inputs) {
    std::vector<Tensor> rows;
    for (const Tensor& t : inputs)
        rows.push_back(rows.empty() ? rows_of(t) : retile(t, rows[0].grid()));
    const Tensor& x = rows[0];
    Tensor y(x.grid(), x.dtype());
    for (int64_t i = 0; i < x.tiles(); ++i) {
        TaskBuilder builder = task(kernel, x.dtype());
        builder.use(writes(y.tile(i)));
        for (const Tensor& t : rows) builder.use(reads(t.tile(i)));
        builder.params(nn_rows_params{rows_in(x, i), x.dim(-1)})
            .flops(8.0 * double(x.block(i).count()))
            .tile(i, x.block(i).extent)
            .emit();
    }
    return y;
}

const OpRegistrar softmax = Op{
    .name = "softmax",
    .doc =
        "softmax(x) -> y\nexp(x - max x) / sum exp(x - max x) along the last axis."
        " y has the shape of x."
        "\n    nn.softmax(nn.tensor{0, 1})  --> {0.2689, 0.7311}",
    .inputs = {"x"},
    .samples = {"{x={3,5}}", "{x={2,4,257}}"},
    .run =
        [](Call& c) {
            c.need_float("x");
            c.result(map_rows("softmax", {c.in("x")}));
        },
    .category = "rows",
};

const OpRegistrar softmax_backward = Op{
    .name = "softmax_backward",
    .doc =
        "softmax_backward(dy, y) -> dx\ny (dy - sum(dy y)) along the last axis."
        "\n    nn.softmax_backward(nn.tensor{1, 0}, nn.tensor{0.5, 0.5})  --> {0.25, -0.25}",
    .inputs = {"dy", "y"},
    .samples = {"{dy={3,5}, y={3,5,lo=0.1,hi=0.3}}"},
    .no_gradient = "is itself a gradient",
    .run =
        [](Call& c) {
            c.need_float("dy");
            c.need_dtype("y", c.in("dy").dtype());
            c.result(map_rows("softmax_backward", {c.in("dy"), c.in("y")}));
        },
    .category = "gradients",
};

const OpRegistrar log_softmax = Op{
    .name = "log_softmax",
    .doc =
        "log_softmax(x) -> y\nx - logsumexp(x) along the last axis."
        "\n    nn.log_softmax(nn.tensor{0, 0})  --> {-0.6931, -0.6931}",
    .inputs = {"x"},
    .samples = {"{x={3,5}}", "{x={2,4,65}}"},
    .run =
        [](Call& c) {
            c.need_float("x");
            c.result(map_rows("log_softmax", {c.in("x")}));
        },
    .category = "rows",
};

const OpRegistrar log_softmax_backward = Op{
    .name = "log_softmax_backward",
    .doc =
        "log_softmax_backward(dy, y) -> dx\ndy - exp(y) sum(dy) along the last axis."
        "\n    nn.log_softmax_backward(nn.tensor{1, 0}, nn.log_softmax(nn.zeros(2)))  --> {0.5, "
        "-0.5}",
    .inputs = {"dy", "y"},
    .samples = {"{dy={3,5}, y={3,5,lo=-3,hi=-0.5}}"},
    .no_gradient = "is itself a gradient",
    .run =
        [](Call& c) {
            c.need_float("dy");
            c.need_dtype("y", c.in("dy").dtype());
            c.result(map_rows("log_softmax_backward", {c.in("dy"), c.in("y")}));
        },
    .category = "gradients",
};

const OpRegistrar logsumexp = Op{
    .name = "logsumexp",
    .doc =
        "logsumexp(x, {keepdim=false}) -> y\nlog sum exp(x) along the last axis, without overflow."
        "\n    nn.logsumexp(nn.tensor{{0, 0}, {1000, 0}})  --> {0.6931, 1000}",
    .inputs = {"x"},
    .attributes = {{"keepdim", "bool", "false", "keep the last axis with size 1"}},
    .samples = {"{x={3,5}}", "{x={2,4,65}, keepdim=true}"},
    .run =
        [](Call& c) {
            c.need_float("x");
            const Tensor x = rows_of(c.in("x"));
            Grid grid = x.grid();
            grid.axes.back() = whole(1);
            Tensor y(grid, x.dtype());
            for (int64_t i = 0; i < x.tiles(); ++i)
                task("logsumexp", x.dtype())
                    .use({writes(y.tile(i)), reads(x.tile(i))})
                    .params(nn_rows_params{rows_in(x, i), x.dim(-1)})
                    .flops(5.0 * double(x.block(i).count()))
                    .tile(i, x.block(i).extent)
                    .emit();
            Dims shape = x.shape();
            shape.pop_back();
            c.result(c.flag("keepdim") ? y : reshape(y, shape));
        },
    .category = "rows",
};

}  // namespace
}  // namespace nn
