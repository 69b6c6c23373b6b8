// Matrix products: matmul, and the linear layer with its bias and GELU fused, forward and backward.
#include "engine/ops/glu.h"
#include "engine/rules/rules.h"
#include "kernels/params/gelu.h"

namespace nn {
namespace {

Dims with_last(Dims shape, int64_t last) {
    shape.back() = last;
    return shape;
}

// Leading axes broadcast as in arithmetic.
Tensor expand_batch(const Tensor& x, const Dims& batch) {
    Dims shape = batch;
    shape.insert(shape.end(), {x.dim(-2), x.dim(-1)});
    return expand(x, shape);
}

void run_matmul(Call& c) {
    Tensor a = c.in("x"), b = c.in("w");
    c.need_float("x");
    c.need_dtype("w", a.dtype());
    MatmulOptions o{.trans_a = c.flag("trans_x"), .trans_b = c.flag("trans_w")};
    const bool vector_a = a.rank() == 1, vector_b = b.rank() == 1;
    c.need(a.rank() > 0 && b.rank() > 0, "x is {}, w is {}; both need at least one axis", a, b);
    if (vector_a) a = reshape(a, {1, a.dim(0)}), o.trans_a = false;
    if (vector_b) b = reshape(b, {b.dim(0), 1}), o.trans_b = false;
    const int64_t inner_a = a.dim(o.trans_a ? -2 : -1), inner_b = b.dim(o.trans_b ? -1 : -2);
    c.need(inner_a == inner_b, "x is {}, w is {}; the inner sizes {} and {} differ", c.in("x"),
           c.in("w"), inner_a, inner_b);
    const int64_t m = a.dim(o.trans_a ? -1 : -2), n = b.dim(o.trans_b ? -2 : -1);
    Dims batch_a(a.shape().begin(), a.shape().end() - 2),
        batch_b(b.shape().begin(), b.shape().end() - 2), batch;
    c.need(broadcast(batch_a, batch_b, &batch),
           "x is {}, w is {}; the leading axes do not broadcast", a, b);
    const bool one_matrix = b.rank() == 2 && a.rank() > 2 && !o.trans_a;
    const Tensor y = one_matrix  // for all of a: a plain product over more rows
                         ? reshape(matmul(as_rows(a), b, o), with_last(a.shape(), n))
                         : matmul(expand_batch(a, batch), expand_batch(b, batch), o);
    Dims shape = batch;
    if (!vector_a) shape.push_back(m);
    if (!vector_b) shape.push_back(n);
    c.result(reshape(y, shape));
}

const OpRegistrar matmul_op = Op{
    .doc = R"(matmul(x, w) -> y
Matrix product over the last two axes, (..., m, k) by (..., k, n) -> (..., m, n). Leading axes
broadcast. A tensor of one axis is a row on the left, a column on the right. trans_x and trans_w
take the last two axes of an operand in the other order, without a copy. Error: inner sizes that
differ.
    nn.tensor{{1, 2}, {3, 4}}:matmul(nn.tensor{1, 1})  --> {3, 7})",
    .attributes = {{"trans_x", "bool", "false", "x is (..., k, m)"},
                   {"trans_w", "bool", "false", "w is (..., n, k)"}},
    .samples = {"{x={5,7}, w={7,3}}", "{x={2,5,7}, w={7,3}}", "{x={2,3,5,7}, w={2,1,7,4}}",
                "{x={7,5}, w={3,7}, trans_x=true, trans_w=true}", "{x={7}, w={7,3}}",
                "{x={5,7}, w={7}}", "{x={2,7,5}, w={2,7,3}, trans_x=true}",
                "{x={2,5,7}, w={2,3,7}, trans_w=true}"},
    .run = run_matmul,
    .category = "products",
    .kernels = {"gemm"},
};

void check_linear(const Call& c) {
    const Tensor &x = c.in("x"), &weight = c.in("weight");
    c.need_float("weight");
    c.need(weight.rank() == 2, "weight is {}; it must be (out, in)", weight);
    c.need(x.rank() >= 1 && x.dim(-1) == weight.dim(1),
           "x is {}, weight is {}; the last size of x must be {}", x, weight, weight.dim(1));
    c.need(x.dtype() == weight.dtype(), "x is {}, weight is {}; the dtypes must be equal",
           x.dtype(), weight.dtype());
}

void run_linear(Call& c) {
    const Tensor &x = c.in("x"), &weight = c.in("weight"), &bias = c.in("bias");
    check_linear(c);
    c.need(!bias || bias.shape() == Dims{weight.dim(0)}, "bias is {}; weight {} needs ({})", bias,
           weight, weight.dim(0));
    c.need_dtype("bias", x.dtype());
    c.need(bias || !c.flag("gelu"), "gelu needs a bias");
    const bool gelu = c.flag("gelu");
    const int32_t gate = glu_activation(c, "glu");
    const Dims shape = with_last(x.shape(), weight.dim(0));
    c.need(gate < 0 || (!gelu && weight.dim(0) % 2 == 0),
           "weight is {}; glu needs an even number of outputs, and no gelu", weight);
    Tensor pre;
    const Tensor y =
        matmul(as_rows(x), weight,
               {.trans_b = true, .bias = bias, .gelu = gelu, .pre = gelu ? &pre : nullptr});
    if (gate >= 0) {
        c.result(reshape(glu(y, gate), with_last(shape, weight.dim(0) / 2)));
        pre = y;
    } else {
        c.result(reshape(y, shape));
    }
    if (pre) c.result(reshape(pre, shape));
}

const Attribute glu_attribute = {"glu", "text", "none",
                                 "apply glu with silu, gelu or gelu_exact; pre is its input"};

const OpRegistrar linear = Op{
    .doc = R"(linear(x, weight, bias?) -> y, pre?
y = x weight^T + bias for x (..., in), weight (out, in), bias (out) or none. With gelu, pre is that
sum, for the backward pass, and y = GELU(pre) by the tanh formula; with glu, y (..., out / 2) =
glu(pre). Error: a weight or bias that does not fit.
    local weight, bias = nn.tensor{{3, 4}, {5, 6}}, nn.tensor{0.5, 0}
    (nn.linear(nn.tensor{{1, 2}}, weight, bias))  --> {{11.5, 17}})",
    .attributes = {{"gelu", "bool", "false", "apply GELU"}, glu_attribute},
    .samples = {"{x={2,5,7}, weight={3,7}, bias={3}}", "{x={5,7}, weight={3,7}}",
                "{x={4,7}, weight={6,7}, bias={6}, gelu=true}",
                "{x={2,5,7}, weight={8,7}, glu='silu'}",
                "{x={5,7}, weight={6,7}, bias={6}, glu='gelu'}"},
    .run = run_linear,
    .category = "products",
    .kernels = {"gemm", "glu"},
};

// dpre = dy GELU'(pre) and, if `sums`, its column sums over each tile of rows, (tiles of rows, n).
Tensor gelu_backward(const Tensor& dy, const Tensor& pre_in, Tensor* sums) {
    const Tensor pre = retile(pre_in, dy.grid());
    Tensor dpre(dy.grid(), dy.dtype());
    if (sums)
        *sums = Tensor(Grid({cut_every(dy.grid().tiles(0), 1), dy.grid().axes[1]}),
                       accumulator(dy.dtype()));
    for (int64_t i = 0; i < dy.tiles(); ++i) {
        const Block block = dy.block(i);
        task("gelu_bias_backward", dy.dtype())
            .use({writes(dpre, i), sums ? writes(*sums, i) : absent(), reads(dy, i), reads(pre, i)})
            .params(nn_gelu_bias_backward_params{block.extent[0], block.extent[1], true})
            .emit(i, block.extent, 20);
    }
    return dpre;
}

void column_sums(const Tensor& dy, const Tensor& dbias, bool into) {
    for (int64_t i = 0; i < dy.tiles(); ++i) {
        const Dims at = dy.grid().index(i);
        const Block block = dy.block(i);
        const bool first = at[0] == 0 && !into;
        task("column_sum", dy.dtype())
            .use({adds(dbias, at[1], first), reads(dy, i)})
            .params(nn_column_sum_params{block.extent[0], block.extent[1], first})
            .emit(i, block.extent, 1);
    }
}

void run_linear_backward(Call& c) {
    const Tensor &x = c.in("x"), &weight = c.in("weight"), &pre = c.in("pre");
    check_linear(c);
    const int32_t gate = glu_activation(c, "glu");
    const Dims shape = with_last(x.shape(), weight.dim(0));
    c.need_tensor("pre", shape, x.dtype());
    c.need_tensor("dy", gate < 0 ? shape : with_last(shape, weight.dim(0) / 2), x.dtype());
    c.need(gate < 0 || pre, "glu needs pre");
    c.need_tensor("dweight", weight.shape(), accumulator(x.dtype()));
    c.need_tensor("dbias", {weight.dim(0)}, accumulator(x.dtype()));
    const bool into = bool(c.in("dbias"));
    Tensor dy = as_rows(c.in("dy")), dbias, dx, sums;
    if (gate >= 0) dy = glu_backward(dy, as_rows(pre), gate, c.flag("bias") ? &sums : nullptr);
    if (c.flag("bias")) {
        dbias = into ? c.in("dbias") : Tensor(Grid({dy.grid().axes[1]}), accumulator(x.dtype()));
        dy = recut(dy, 1, dbias.grid().axes[0]);
    }
    if (pre && gate < 0) dy = gelu_backward(dy, as_rows(pre), dbias ? &sums : nullptr);
    if (sums) sums = recut(sums, 1, dbias.grid().axes[0]);
    if (dbias) column_sums(sums ? sums : dy, dbias, into);
    if (c.flag("need_dx")) dx = reshape(matmul(dy, weight), x.shape());
    const Tensor& sum = c.in("dweight");
    const Tensor rows = as_rows(x);
    const bool one_product = dy.grid().tiles(0) == 1 && rows.grid().tiles(0) == 1;
    const bool wide = sum || !one_product || !settings().bf16_gradients;
    const Tensor dweight = matmul(dy, rows, {.trans_a = true, .into = sum, .wide = wide});
    c.results = {dx, dweight, dbias};
}

const OpRegistrar linear_backward = Op{
    .doc = R"(linear_backward(dy, x, weight, pre?,
dweight+weight, dbias+bias) -> dx?, dweight, dbias?
The gradients of linear. pre is given for a layer with GELU. dbias of a bf16 layer is f32, and so is
dweight unless nn.gradient_dtype says bf16. If one of them is given, the gradient is added to it in
place.
    nn.linear_backward(nn.ones(2, 3), nn.randn(2, 4), nn.randn(3, 4)):dims()  --> 2, 4)",
    .attributes = {{"bias", "bool", "true", "the layer has a bias"},
                   {"need_dx", "bool", "true", "compute dx"},
                   glu_attribute},
    .samples = {"{dy={2,5,3}, x={2,5,7}, weight={3,7}}",
                "{dy={5,3}, x={5,7}, weight={3,7}, pre={5,3}}",
                "{dy={5,3}, x={5,7}, weight={3,7}, bias=false}",
                "{dy={5,3}, x={5,7}, weight={3,7}, pre={5,3}, bias=false}",
                "{dy={5,3}, x={5,7}, weight={6,7}, pre={5,6}, glu='silu'}"},
    .gradient_of = "linear",
    .run = run_linear_backward,
    .kernels = {"gemm", "gelu_bias_backward", "glu_backward", "column_sum"},
};

}  // namespace
}  // namespace nn
