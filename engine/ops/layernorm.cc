// Residual addition and LayerNorm in one kernel, forward and backward.
#include "engine/base/error.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

Grid with_last_axis(const Grid& grid, int64_t size) {
    Grid out = grid;
    out.axes.back() = whole(size);
    return out;
}

const OpRegistrar layernorm = Op{
    .name = "layernorm",
    .doc =
        "layernorm(x, weight, bias, delta, {eps=1e-5}) -> y, s, stats\n"
        "s = x + delta (x itself without delta); y = (s - mean) / sqrt(var + eps) * weight + bias "
        "over the last axis, with "
        "the biased variance. stats holds mean and 1/std of every row for the backward pass."
        " Error: weight, bias or delta that do not fit x."
        "\n    (nn.layernorm(nn.tensor{{1, 3}}, nn.ones(2), nn.zeros(2)))  --> {{-1.00, 1.00}}",
    .inputs = {"x", "weight", "bias?", "delta?"},
    .attributes = {{"eps", "number", "1e-5", "added to the variance"}},
    .samples = {"{x={2,5,7}, weight={7}, bias={7}, delta={2,5,7}}",
                "{x={5,7}, weight={7}, bias={7}}", "{x={5,7}, weight={7}}"},
    .run =
        [](Call& c) {
            c.need_float("x");
            const Tensor x = rows_of(c.in("x"));
            for (const char* name : {"weight", "bias"}) {
                const Tensor& t = c.in(name);
                c.need(!t || t.shape() == Dims{x.dim(-1)}, "%s is %s, x is %s; %s must be (%lld)",
                       name, t ? to_string(t.shape()).c_str() : "", to_string(x.shape()).c_str(),
                       name, (long long)x.dim(-1));
                c.need_dtype(name, x.dtype());
            }
            c.need(!c.in("delta") || c.in("delta").shape() == x.shape(),
                   "delta is %s, x is %s; they must be equal",
                   c.in("delta") ? to_string(c.in("delta").shape()).c_str() : "",
                   to_string(x.shape()).c_str());
            c.need_dtype("delta", x.dtype());
            const Tensor delta = c.in("delta") ? retile(c.in("delta"), x.grid()) : Tensor();
            const Tensor weight = whole_tensor(c.in("weight"));
            const Tensor bias = c.in("bias") ? whole_tensor(c.in("bias")) : Tensor();
            Tensor y(x.grid(), x.dtype()),
                stats(with_last_axis(x.grid(), 2), accumulator(x.dtype()));
            const Tensor s = delta ? Tensor(x.grid(), x.dtype()) : x;
            for (int64_t i = 0; i < x.tiles(); ++i)
                task("layernorm", x.dtype())
                    .use(writes(y.tile(i)))
                    .use(delta ? writes(s.tile(i)) : absent())
                    .use({writes(stats.tile(i)), reads(x.tile(i))})
                    .use(delta ? reads(delta.tile(i)) : absent())
                    .use(reads(weight.tile(0)))
                    .use(bias ? reads(bias.tile(0)) : absent())
                    .params(nn_layernorm_params{rows_in(x, i), x.dim(-1), c.number("eps"), 0})
                    .flops(8.0 * double(x.block(i).count()))
                    .tile(i, x.block(i).extent)
                    .emit();
            c.result(y);
            c.result_of(c.in("x"), s);
            c.result(stats);
        },
    .category = "layers",
};

void check_backward(const Call& c, const Tensor& s) {
    const Dtype sums = accumulator(s.dtype());
    for (const char* name : {"dy", "ds"}) {
        c.need_shape(name, s.shape());
        c.need_dtype(name, s.dtype());
    }
    c.need_shape("stats", with_last_axis(s.grid(), 2).shape());
    c.need_dtype("stats", sums);
    c.need_shape("weight", {s.dim(-1)});
    c.need_dtype("weight", s.dtype());
    for (const char* name : {"dweight", "dbias"}) {
        c.need_shape(name, {s.dim(-1)});
        c.need_dtype(name, sums);
        c.need(!c.in(name) || c.in(name).tiles() == 1, "%s must be one tile", name);
    }
    c.need(bool(c.in("dweight")) == bool(c.in("dbias")) || !c.flag("bias"),
           "dweight and dbias must both be given, or neither");
    for (const char* name : {"dweight", "dbias"}) c.accumulates_into(name);
}

const OpRegistrar layernorm_backward = Op{
    .name = "layernorm_backward",
    .doc =
        "layernorm_backward(dy, s, stats, weight, ds, dweight, dbias, {bias=true}) -> dx, dweight, "
        "dbias\n"
        "The gradients of layernorm; dx is that of x and of delta. ds is the gradient that reaches "
        "s from elsewhere. Where "
        "dweight or dbias is given, the gradient is added to it in place."
        "\n    local weight = nn.ones(4)"
        "\n    local _, s, stats = nn.layernorm(nn.randn(2, 4), weight, nn.zeros(4))"
        "\n    nn.layernorm_backward(nn.ones(2, 4), s, stats, weight):dims()  --> 2, 4",
    .inputs = {"dy", "s", "stats", "weight", "ds?", "dweight?", "dbias?"},
    .attributes = {{"bias", "bool", "true", "the layer has a bias"}},
    .samples = {"{dy={5,7}, s={5,7}, stats={5,2,lo=0.5,hi=1.5}, weight={7}, ds={5,7}}"},
    .no_gradient = "is itself a gradient",
    .run =
        [](Call& c) {
            c.need_float("s");
            const Tensor s = rows_of(c.in("s"));
            check_backward(c, s);
            const Tensor dy = retile(c.in("dy"), s.grid());
            const Tensor stats = retile(c.in("stats"), with_last_axis(s.grid(), 2));
            const Tensor ds = c.in("ds") ? retile(c.in("ds"), s.grid()) : Tensor();
            const Tensor weight = whole_tensor(c.in("weight"));
            const bool bias = c.flag("bias"), into = bool(c.in("dweight"));
            const Dtype sums = accumulator(s.dtype());
            const Tensor dweight =
                into ? c.in("dweight") : Tensor(Grid::whole(weight.shape()), sums);
            Tensor dbias;
            if (bias) dbias = into ? c.in("dbias") : Tensor(Grid::whole(weight.shape()), sums);
            Tensor dx(s.grid(), s.dtype());
            for (int64_t i = 0; i < s.tiles(); ++i) {
                const bool first = i == 0 && !into;
                const auto sum = [&](const Tensor& t) {
                    return first ? writes(t.tile(0)) : updates(t.tile(0));
                };
                task("layernorm_backward", s.dtype())
                    .use({writes(dx.tile(i)), sum(dweight), bias ? sum(dbias) : absent()})
                    .use({reads(dy.tile(i)), reads(s.tile(i)), reads(stats.tile(i)),
                          reads(weight.tile(0))})
                    .use(ds ? reads(ds.tile(i)) : absent())
                    .params(nn_layernorm_params{rows_in(s, i), s.dim(-1), 0, first})
                    .flops(15.0 * double(s.block(i).count()))
                    .tile(i, s.block(i).extent)
                    .emit();
            }
            c.result(dx);
            c.result(dweight);
            c.result(dbias);
        },
    .category = "gradients",
};

}  // namespace
}  // namespace nn
