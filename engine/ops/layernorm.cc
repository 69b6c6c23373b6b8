// Residual addition and LayerNorm or RMSNorm in one kernel, forward and backward.
#include "kernels/params/layernorm.h"

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

// The grid of stats: the mean and 1/std of every row.
Grid stats_grid(const Tensor& rows) { return rows.grid().with(-1, whole(2)); }

void check_vector(const Call& c, const char* name, const Tensor& x) {
    const Tensor& t = c.in(name);
    c.need(!t || t.shape() == Dims{x.dim(-1)}, "{} is {}, x is {}; {} must be ({})", name, t, x,
           name, x.dim(-1));
    c.need_dtype(name, x.dtype());
}

template <bool rms> void run_norm(Call& c) {
    c.need_float("x");
    const Tensor x = rows_of(c.in("x"));
    check_vector(c, "weight", x);
    if (!rms) check_vector(c, "bias", x);
    c.need_same_shape("delta", "x");
    c.need_dtype("delta", x.dtype());
    const Tensor delta = retile(c.in("delta"), x.grid());
    const Tensor weight = whole_tensor(c.in("weight"));
    const Tensor bias = rms ? Tensor() : whole_tensor(c.in("bias"));
    const Tensor y(x.grid(), x.dtype()), stats(stats_grid(x), accumulator(x.dtype()));
    const Tensor sum = delta ? Tensor(x.grid(), x.dtype()) : Tensor();
    for (int64_t i = 0; i < x.tiles(); ++i)
        task("layernorm", x.dtype())
            .use({writes(y, i), writes(sum, i), writes(stats, i)})
            .use({reads(x, i), reads(delta, i), reads(weight, 0), reads(bias, 0)})
            .params(nn_layernorm_params{rows_in(x, i), x.dim(-1), c.number("eps"), 0, rms})
            .emit(i, x.block(i).extent, 8);
    c.result(y);
    c.result_of(c.in("x"), sum ? sum : x);
    c.result(stats);
}

const OpRegistrar layernorm = Op{
    .doc = R"(layernorm(x, weight, bias?, delta?) -> y, s, stats~
s = x + delta (x itself without delta); y = (s - mean) / sqrt(var + eps) * weight + bias over the
last axis, with the biased variance. stats is mean and 1/std of every row, for the backward pass.
Error: weight, bias or delta that do not fit x.
    (nn.layernorm(nn.tensor{{1, 3}}, nn.ones(2), nn.zeros(2)))  --> {{-1.00, 1.00}})",
    .attributes = {{"eps", "number", "1e-5", "added to the variance"}},
    .samples = {"{x={2,5,7}, weight={7}, bias={7}, delta={2,5,7}}",
                "{x={5,7}, weight={7}, bias={7}}", "{x={5,7}, weight={7}}"},
    .run = run_norm<false>,
    .category = "layers",
};

const OpRegistrar rmsnorm = Op{
    .doc = R"(rmsnorm(x, weight, delta?) -> y, s, stats~
s = x + delta (x itself without delta); y = s / sqrt(mean(s^2) + eps) * weight over the last axis.
stats is 0 and 1 / sqrt(mean(s^2) + eps) of every row, for the backward pass. Error: weight or delta
that do not fit x.
    (nn.rmsnorm(nn.tensor{{1, 7}}, nn.ones(2)))  --> {{0.2, 1.4}})",
    .attributes = {{"eps", "number", "1e-6", "added to the mean square"}},
    .samples = {"{x={2,5,7}, weight={7}, delta={2,5,7}}", "{x={5,7}, weight={7}}"},
    .run = run_norm<true>,
    .category = "layers",
    .kernels = {"layernorm"},
};

void check_backward(const Call& c, const Tensor& s, bool bias) {
    const Dtype sums = accumulator(s.dtype());
    c.need_tensor("dy", s.shape(), s.dtype());
    c.need_tensor("ds", s.shape(), s.dtype());
    c.need_tensor("stats", stats_grid(s).shape(), sums);
    c.need_tensor("weight", {s.dim(-1)}, s.dtype());
    c.need_tensor("dweight", {s.dim(-1)}, sums);
    if (!bias) return;
    c.need_tensor("dbias", {s.dim(-1)}, sums);
    c.need(bool(c.in("dweight")) == bool(c.in("dbias")),
           "dweight and dbias must both be given, or neither");
}

template <bool rms> void run_norm_backward(Call& c) {
    c.need_float("s");
    const Tensor s = rows_of(c.in("s"));
    const bool bias = !rms && c.flag("bias");
    check_backward(c, s, bias);
    const Tensor dy = retile(c.in("dy"), s.grid()), ds = retile(c.in("ds"), s.grid());
    const Tensor stats = retile(c.in("stats"), stats_grid(s));
    const Tensor weight = whole_tensor(c.in("weight"));
    const bool into = is_one_tile(c.in("dweight")) && (!bias || is_one_tile(c.in("dbias")));
    const auto sums = [&](const char* name) {
        return into ? c.in(name) : Tensor(weight.grid(), accumulator(s.dtype()));
    };
    const Tensor dx(s.grid(), s.dtype()), dweight = sums("dweight");
    const Tensor dbias = bias ? sums("dbias") : Tensor();
    for (int64_t i = 0; i < s.tiles(); ++i) {
        const bool first = i == 0 && !into;
        task("layernorm_backward", s.dtype())
            .use({writes(dx, i), adds(dweight, 0, first), adds(dbias, 0, first)})
            .use({reads(dy, i), reads(s, i), reads(stats, i), reads(weight, 0), reads(ds, i)})
            .params(nn_layernorm_params{rows_in(s, i), s.dim(-1), 0, first, rms})
            .emit(i, s.block(i).extent, 15);
    }
    c.results = {dx, added_to(c.in("dweight"), dweight)};
    if (!rms) c.result(bias ? added_to(c.in("dbias"), dbias) : Tensor());
}

const OpRegistrar layernorm_backward = Op{
    .doc = R"(layernorm_backward(dy, s, stats, weight, ds?,
dweight+weight, dbias+bias) -> dx, dweight, dbias?
The gradients of layernorm; dx is that of x and of delta. ds is the gradient of s, if s is used too.
If dweight or dbias is given, the gradient is added to it in place.
    local weight = nn.ones(4)
    local _, s, stats = nn.layernorm(nn.randn(2, 4), weight, nn.zeros(4))
    nn.layernorm_backward(nn.ones(2, 4), s, stats, weight):dims()  --> 2, 4)",
    .attributes = {{"bias", "bool", "true", "the layer has a bias"}},
    .samples = {"{dy={5,7}, s={5,7}, stats={5,2,lo=0.5,hi=1.5}, weight={7}, ds={5,7}}"},
    .gradient_of = "layernorm",
    .run = run_norm_backward<false>,
};

const OpRegistrar rmsnorm_backward = Op{
    .doc = R"(rmsnorm_backward(dy, s, stats, weight, ds?,
dweight+weight) -> dx, dweight
The gradients of rmsnorm; dx is that of x and of delta. ds is the gradient of s, if s is used too.
If dweight is given, the gradient is added to it in place.
    local weight = nn.ones(4)
    local _, s, stats = nn.rmsnorm(nn.randn(2, 4), weight)
    nn.rmsnorm_backward(nn.ones(2, 4), s, stats, weight):dims()  --> 2, 4)",
    .samples = {"{dy={5,7}, s={5,7}, stats={5,2,lo=0.5,hi=1.5}, weight={7}, ds={5,7}}"},
    .gradient_of = "rmsnorm",
    .run = run_norm_backward<true>,
    .kernels = {"layernorm_backward"},
};

}  // namespace
}  // namespace nn
