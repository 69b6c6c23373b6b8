// Softmax, log-softmax and logsumexp over the last axis.
#include "engine/ops/op.h"
#include "engine/rules/rules.h"
#include "kernels/params/rows.h"

namespace nn {
namespace {

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
    std::vector<Tensor> rows;
    for (size_t i = 0; i < c.op.inputs.size(); ++i) {
        const char* name = c.op.inputs[i].name.c_str();
        c.need_float(name);
        c.need_dtype(name, c.all()[0].dtype());
        rows.push_back(i == 0 ? rows_of(c.all()[i]) : retile(c.all()[i], rows[0].grid()));
    }
    const Tensor y(rows[0].grid(), rows[0].dtype());
    emit_rows(c.op.name.c_str(), y, rows, 8);
    c.result(y);
}

const OpRegistrar softmax = Op{
    .doc = R"(softmax(x) -> y
exp(x - max x) / sum exp(x - max x) along the last axis. y has the shape of x.
    nn.softmax(nn.tensor{0, 1})  --> {0.2689, 0.7311})",
    .samples = {"{x={3,5}}", "{x={2,4,257}}"},
    .run = run_rows,
    .category = "rows",
};

const OpRegistrar softmax_backward = Op{
    .doc = R"(softmax_backward(dy, y) -> dx
y (dy - sum(dy y)) along the last axis.
    nn.softmax_backward(nn.tensor{1, 0}, nn.tensor{0.5, 0.5})  --> {0.25, -0.25})",
    .samples = {"{dy={3,5}, y={3,5,lo=0.1,hi=0.3}}"},
    .gradient_of = "softmax",
    .gradient_in = "x",
    .run = run_rows,
};

const OpRegistrar log_softmax = Op{
    .doc = R"(log_softmax(x) -> y
x - logsumexp(x) along the last axis.
    nn.log_softmax(nn.tensor{0, 0})  --> {-0.6931, -0.6931})",
    .samples = {"{x={3,5}}", "{x={2,4,65}}"},
    .run = run_rows,
    .category = "rows",
};

const OpRegistrar log_softmax_backward = Op{
    .doc = R"(log_softmax_backward(dy, y) -> dx
dy - exp(y) sum(dy) along the last axis.
    nn.log_softmax_backward(nn.tensor{1, 0}, nn.log_softmax(nn.zeros(2)))  --> {0.5, -0.5})",
    .samples = {"{dy={3,5}, y={3,5,lo=-3,hi=-0.5}}"},
    .gradient_of = "log_softmax",
    .gradient_in = "x",
    .run = run_rows,
};

void run_logsumexp(Call& c) {
    c.need_float("x");
    const Tensor x = rows_of(c.in("x"));
    const Tensor y(x.grid().with(-1, whole(1)), x.dtype());
    emit_rows("logsumexp", y, {x}, 5);
    c.result(c.flag("keepdim") ? y : drop_axes(y, {int(x.rank()) - 1}));
}

const OpRegistrar logsumexp = Op{
    .doc = R"(logsumexp(x) -> y
log sum exp(x) along the last axis, without overflow.
    nn.logsumexp(nn.tensor{{0, 0}, {1000, 0}})  --> {0.6931, 1000})",
    .attributes = {{"keepdim", "bool", "false", "keep the last axis with size 1"}},
    .samples = {"{x={3,5}}", "{x={2,4,65}, keepdim=true}"},
    .run = run_logsumexp,
    .category = "rows",
};

}  // namespace
}  // namespace nn
