// Softmax, log-softmax and logsumexp over an axis. The kernels take rows, so another axis than the
// last one is moved there, by copies if need be.
#include <numeric>

#include "engine/ops/op.h"
#include "engine/rules/rules.h"
#include "kernels/params/rows.h"

namespace nn {
namespace {

const Attribute axis_attribute = {"axis", "axis", "-1", "the axis of the sum"};

// x with `axis` and the last one exchanged, which is its own inverse.
Tensor exchanged(const Tensor& x, int axis) {
    std::vector<int> order(x.rank());
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[size_t(axis)], order.back());
    return order[size_t(axis)] == axis ? x : permute(x, order);
}

void emit_rows(const char* kernel, const Tensor& y, const std::vector<Tensor>& rows,
               double flops_per_element) {
    const Tensor& x = rows[0];
    for (int64_t i = 0; i < x.tiles(); ++i) {
        TaskBuilder builder = task(kernel, x.dtype());
        builder.use(writes(y, i));
        for (const Tensor& t : rows) builder.use(reads(t, i));
        builder.params(nn_rows_params{rows_in(x, i), x.dim(-1)})
            .emit(i, x.block(i).extent, flops_per_element);
    }
}

// Runs the kernel with the op's name, from rows of all inputs to rows of the same shape.
void run_rows(Call& c) {
    const int axis = c.axis("axis", c.all()[0].rank());
    std::vector<Tensor> rows;
    for (size_t i = 0; i < c.op.inputs.size(); ++i) {
        const char* name = c.op.inputs[i].name.c_str();
        c.need_float(name);
        c.need_dtype(name, c.all()[0].dtype());
        c.need_same_shape(name, c.op.inputs[0].name.c_str());
        const Tensor x = exchanged(c.all()[i], axis);
        rows.push_back(i == 0 ? rows_of(x) : retile(x, rows[0].grid()));
    }
    const Tensor y(rows[0].grid(), rows[0].dtype());
    emit_rows(c.op.name.c_str(), y, rows, 8);
    c.result(exchanged(y, axis));
}

const OpRegistrar softmax = Op{
    .doc = R"(softmax(x) -> y
exp(x - max x) / sum exp(x - max x) along an axis. y has the shape of x.
    nn.softmax(nn.tensor{0, 1})  --> {0.2689, 0.7311}
    x:softmax(1)  --> {{0.0474, 0.0474, 0.0474}, {0.9526, 0.9526, 0.9526}})",
    .attributes = {axis_attribute},
    .samples = {"{x={3,5}}", "{x={2,4,257}}", "{x={3,5,4}, axis=2}"},
    .any_rank = true,
    .run = run_rows,
    .category = "rows",
};

const OpRegistrar softmax_backward = Op{
    .doc = R"(softmax_backward(dy, y) -> dx
y (dy - sum(dy y)) along an axis.
    nn.softmax_backward(nn.tensor{1, 0}, nn.tensor{0.5, 0.5})  --> {0.25, -0.25})",
    .attributes = {axis_attribute},
    .samples = {"{dy={3,5}, y={3,5,lo=0.1,hi=0.3}}"},
    .gradient_of = "softmax",
    .gradient_in = "x",
    .any_rank = true,
    .run = run_rows,
};

const OpRegistrar log_softmax = Op{
    .doc = R"(log_softmax(x) -> y
x - logsumexp(x) along an axis.
    nn.log_softmax(nn.tensor{0, 0})  --> {-0.6931, -0.6931})",
    .attributes = {axis_attribute},
    .samples = {"{x={3,5}}", "{x={2,4,65}}", "{x={3,5,4}, axis=1}"},
    .any_rank = true,
    .run = run_rows,
    .category = "rows",
};

const OpRegistrar log_softmax_backward = Op{
    .doc = R"(log_softmax_backward(dy, y) -> dx
dy - exp(y) sum(dy) along an axis.
    nn.log_softmax_backward(nn.tensor{1, 0}, nn.log_softmax(nn.zeros(2)))  --> {0.5, -0.5})",
    .attributes = {axis_attribute},
    .samples = {"{dy={3,5}, y={3,5,lo=-3,hi=-0.5}}"},
    .gradient_of = "log_softmax",
    .gradient_in = "x",
    .any_rank = true,
    .run = run_rows,
};

void run_logsumexp(Call& c) {
    c.need_float("x");
    const int axis = c.axis("axis", c.in("x").rank());
    const Tensor x = rows_of(exchanged(c.in("x"), axis));
    Tensor y(x.grid().with(-1, whole(1)), x.dtype());
    emit_rows("logsumexp", y, {x}, 5);
    y = exchanged(y, axis);
    c.result(c.flag("keepdim") ? y : drop_axes(y, {axis}));
}

const OpRegistrar logsumexp = Op{
    .doc = R"(logsumexp(x) -> y
log sum exp(x) along an axis, without overflow.
    nn.logsumexp(nn.tensor{{0, 0}, {1000, 0}})  --> {0.6931, 1000})",
    .attributes = {axis_attribute, {"keepdim", "bool", "false", "keep the axis with size 1"}},
    .samples = {"{x={3,5}}", "{x={2,4,65}, keepdim=true}", "{x={3,5,4}, axis=2}"},
    .any_rank = true,
    .run = run_logsumexp,
    .category = "rows",
};

}  // namespace
}  // namespace nn
