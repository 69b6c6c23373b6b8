// Optimizer updates in place and the global gradient norm. Learning rate and step number may be
// nn.scalars, so that a compiled step reads their current values.
#include <algorithm>
#include <cstddef>

#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"
#include "kernels/params/optimizer.h"

namespace nn {
namespace {

void check_state(const Call& c, const char* name, Dtype dtype) {
    c.need_same_shape(name, "param");
    c.need_dtype(name, dtype);
    c.need(!c.in(name) || c.in(name).grid() == c.in("param").grid(),
           "{} must be cut like param: make it with full_like(param, 0)", name);
}

// The gradient cut like param. Checks norm too.
Tensor checked_grad(const Call& c) {
    const Tensor& norm = c.in("norm");
    c.need_same_shape("grad", "param");
    for (const char* name : {"param", "grad"}) c.need_float(name);
    c.need(!norm || (norm.count() == 1 && norm.dtype() == Dtype::f64),
           "norm must be the scalar that grad_norm returns");
    c.need(norm || (c.number("clip") == 0 && !c.flag("skip_nonfinite")),
           "clip and skip_nonfinite need norm, the result of grad_norm");
    return retile(c.in("grad"), c.in("param").grid());
}

// The parameters that all tiles share.
nn_adamw_params adamw_params(const Call& c, Dtype grad) {
    const Tensor &param = c.in("param"), &master = c.in("master");
    nn_adamw_params p{};
    p.lr = c.number_or_scalar("lr"), p.step = c.number_or_scalar("step");
    p.beta1 = c.number("beta1"), p.beta2 = c.number("beta2"), p.eps = c.number("eps");
    p.weight_decay = c.number("weight_decay"), p.clip = c.number("clip");
    p.skip_nonfinite = c.flag("skip_nonfinite"), p.stochastic = c.flag("stochastic");
    p.coupled = c.flag("coupled");
    p.grad_dtype = int32_t(grad);
    if (!p.stochastic) return p;
    c.need(param.dtype() == Dtype::bf16 && !master,
           "stochastic is for a bf16 param without a master; param is {}{}", param.dtype(),
           master ? " with one" : "");
    p.noise.seed = random_seed(), p.noise.counter = sink().next_random();
    return p;
}

void run_adamw(Call& c) {
    const Tensor &param = c.in("param"), &m = c.in("m"), &v = c.in("v"), &master = c.in("master");
    for (const char* name : {"m", "v"}) check_state(c, name, accumulator(param.dtype()));
    check_state(c, "master", Dtype::f32);
    const Tensor grad = checked_grad(c);
    nn_adamw_params p = adamw_params(c, grad.dtype());
    std::vector<Patch> key;
    if (p.stochastic)
        key = {{Patch::random_key, int32_t(offsetof(nn_adamw_params, noise.seed)), 0}};
    for (int64_t i = 0; i < param.tiles(); ++i) {
        const Block block = param.block(i);
        p.n = block.count();
        if (p.stochastic) set_position(p.noise, block, param.shape());
        task("adamw", param.dtype())
            .use({updates(param, i), updates(m, i), updates(v, i), reads(grad, i)})
            .use({reads(c.in("norm"), 0), updates(master, i)})
            .params(p)
            .patch(c.patch("lr", offsetof(nn_adamw_params, lr)))
            .patch(c.patch("step", offsetof(nn_adamw_params, step)))
            .patch(key)
            .emit(i, block.extent, 12);
    }
    c.result(param);
}

const Attribute lr_attribute = {"lr", "number", "", "learning rate"};
const Attribute decay_attribute = {"weight_decay", "number", "0", "weight decay"};
const Attribute clip_attribute = {"clip", "number", "0",
                                  "largest global gradient norm; 0: no clipping. Needs norm."};
const Attribute skip_attribute = {"skip_nonfinite", "bool", "false",
                                  "change nothing when norm is NaN or Inf"};

const OpRegistrar adamw_ = Op{
    .doc = R"(adamw_(param!, m!, v!, grad, norm?, master?!) -> param
One AdamW step in place (Loshchilov & Hutter 2019, arXiv 1711.05101; bias correction by step = 1, 2,
...). The gradient is first scaled by min(1, clip / (norm + 1e-6)). master: f32 copy of a bf16
parameter, updated too. stochastic: a bf16 parameter without master is rounded stochastically, so
that its mean is exact. coupled: weight decay is added to the gradient, as in Adam. A step that skip_nonfinite skips still counts in the bias correction.
Error: m, v or grad of another shape than param.
    local w, m, v = nn.ones(2), nn.zeros(2), nn.zeros(2)
    nn.adamw_(w, m, v, nn.tensor{0.5, -2}, {lr = 0.1, step = 1})  --> {0.9, 1.1})",
    .attributes = {lr_attribute,
                   {"step", "number", "", "number of this step, from 1"},
                   {"beta1", "number", "0.9", "decay of the mean"},
                   {"beta2", "number", "0.999", "decay of the mean square"},
                   {"eps", "number", "1e-8", "added to the root"},
                   decay_attribute,
                   clip_attribute,
                   skip_attribute,
                   {"stochastic", "bool", "false", "round a bf16 param stochastically"},
                   {"coupled", "bool", "false", "Adam instead of AdamW"}},
    .samples = {"{param={5,7}, m={5,7}, v={5,7,lo=0,hi=1}, grad={5,7}, lr=0.01, step=3, "
                "weight_decay=0.1}"},
    .changes_parameters = true,
    .run = run_adamw,
    .category = "optimizers",
    .kernels = {"adamw"},
};

void run_sgd(Call& c) {
    const Tensor &param = c.in("param"), &velocity = c.in("velocity");
    check_state(c, "velocity", accumulator(param.dtype()));
    const Tensor grad = checked_grad(c);
    c.need(c.number("momentum") == 0 || velocity, "momentum needs a velocity: full_like(param, 0)");
    nn_sgd_params p{};
    p.lr = c.number_or_scalar("lr"), p.momentum = c.number("momentum");
    p.weight_decay = c.number("weight_decay"), p.clip = c.number("clip");
    p.nesterov = c.flag("nesterov"), p.first = c.flag("first");
    p.skip_nonfinite = c.flag("skip_nonfinite"), p.grad_dtype = int32_t(grad.dtype());
    for (int64_t i = 0; i < param.tiles(); ++i) {
        p.n = param.block(i).count();
        task("sgd", param.dtype())
            .use({updates(param, i), updates(velocity, i), reads(grad, i), reads(c.in("norm"), 0)})
            .params(p)
            .patch(c.patch("lr", offsetof(nn_sgd_params, lr)))
            .emit(i, param.block(i).extent, 6);
    }
    c.result(param);
}

const OpRegistrar sgd_ = Op{
    .doc = R"(sgd_(param!, grad, velocity?!, norm?) -> param
One step of stochastic gradient descent in place. Momentum needs velocity, which is overwritten when
first is true. Error: a grad of another shape than param.
    nn.sgd_(nn.tensor{1, 2}, nn.tensor{5, 0}, {lr = 0.1})  --> {0.5, 2})",
    .attributes = {lr_attribute,
                   {"momentum", "number", "0", "of the velocity"},
                   {"nesterov", "bool", "false", "look ahead"},
                   decay_attribute,
                   {"first", "bool", "false", "velocity has no value yet"},
                   clip_attribute,
                   skip_attribute},
    .samples = {"{param={5,7}, grad={5,7}, velocity={5,7}, lr=0.1, momentum=0.9}",
                "{param={5,7}, grad={5,7}, lr=0.1}"},
    .changes_parameters = true,
    .run = run_sgd,
    .category = "optimizers",
    .kernels = {"sgd"},
};

// What the updates of kernels/math/updates.h share.
nn_update_params update_params(const Call& c, Dtype grad) {
    return {.n = 0,
            .lr = c.number_or_scalar("lr"),
            .weight_decay = c.number("weight_decay"),
            .clip = c.number("clip"),
            .skip_nonfinite = c.flag("skip_nonfinite"),
            .grad_dtype = int32_t(grad)};
}

// Emits the tasks of an update. states: names of inputs; step: the offset of the number of the step
// in Params, if it has one.
template <class Params>
void emit_update(Call& c, const char* kernel, const std::vector<const char*>& states, Params p,
                 size_t step = 0) {
    const Tensor &param = c.in("param"), &master = c.in("master");
    for (const char* name : states) check_state(c, name, accumulator(param.dtype()));
    check_state(c, "master", Dtype::f32);
    c.need(!master || param.dtype() == Dtype::bf16, "master is for a bf16 param, which is {}",
           param.dtype());
    const Tensor grad = checked_grad(c);
    p.update = update_params(c, grad.dtype());
    for (int64_t i = 0; i < param.tiles(); ++i) {
        const Block block = param.block(i);
        p.update.n = block.count();
        TaskBuilder builder = task(kernel, param.dtype());
        builder.use(
            {updates(param, i), updates(master, i), reads(grad, i), reads(c.in("norm"), 0)});
        for (const char* name : states) builder.use(updates(c.in(name), i));
        builder.params(p).patch(c.patch("lr", offsetof(Params, update.lr)));
        if (step) builder.patch(c.patch("step", step));
        builder.emit(i, block.extent, 12);
    }
    c.result(param);
}

void run_lion(Call& c) {
    nn_lion_params p{};
    p.beta1 = c.number("beta1"), p.beta2 = c.number("beta2");
    emit_update(c, "lion", {"mean"}, p);
}

const OpRegistrar lion_ = Op{
    .doc = R"(lion_(param!, mean!, grad, norm?, master?!) -> param
One step of Lion in place (Chen et al. 2023, arXiv 2302.06675): by lr against the sign of
beta1 mean + (1 - beta1) grad. clip and master as in adamw_. Error: mean or grad of another shape
than param.
    local w, mean = nn.ones(3), nn.zeros(3)
    nn.lion_(w, mean, nn.tensor{0.5, -2, 0}, {lr = 0.1})  --> {0.9, 1.1, 1})",
    .attributes = {lr_attribute,
                   {"beta1", "number", "0.9", "weight of the mean in the direction"},
                   {"beta2", "number", "0.99", "decay of the mean"},
                   decay_attribute,
                   clip_attribute,
                   skip_attribute},
    .samples = {"{param={5,7}, mean={5,7}, grad={5,7}, lr=0.01, weight_decay=0.1}"},
    .changes_parameters = true,
    .run = run_lion,
    .category = "optimizers",
    .kernels = {"lion"},
};

void run_rmsprop(Call& c) {
    nn_rmsprop_params p{};
    p.alpha = c.number("alpha"), p.eps = c.number("eps"), p.momentum = c.number("momentum");
    c.need((p.momentum > 0) == bool(c.in("velocity")),
           "a momentum needs velocity, full_like(param, 0), and the other way round");
    emit_update(c, "rmsprop", {"square", "mean", "velocity"}, p);
}

const OpRegistrar rmsprop_ = Op{
    .doc = R"(rmsprop_(param!, square!, grad, norm?, mean?!, velocity?!, master?!) -> param
One step of RMSprop in place, as torch.optim.RMSprop: the gradient is divided by the root of its
mean square, with mean of its variance (centered). Momentum needs velocity. weight_decay is added to
the gradient. clip and master as in adamw_. Error: a state or grad of another shape than param.
    local w, square = nn.ones(2), nn.zeros(2)
    nn.rmsprop_(w, square, nn.tensor{0.5, -2}, {lr = 0.1, alpha = 0.75})  --> {0.8, 1.2})",
    .attributes = {lr_attribute,
                   {"alpha", "number", "0.99", "decay of the mean square"},
                   {"eps", "number", "1e-8", "added to the root"},
                   {"momentum", "number", "0", "of the velocity"},
                   decay_attribute,
                   clip_attribute,
                   skip_attribute},
    .samples = {"{param={5,7}, square={5,7,lo=1,hi=2}, mean={5,7}, velocity={5,7}, grad={5,7}, "
                "lr=0.01, momentum=0.9}",
                "{param={5,7}, square={5,7,lo=0,hi=1}, grad={5,7}, lr=0.01, weight_decay=0.1}"},
    .changes_parameters = true,
    .run = run_rmsprop,
    .category = "optimizers",
    .kernels = {"rmsprop"},
};

void run_adagrad(Call& c) {
    nn_adagrad_params p{};
    p.step = c.number_or_scalar("step"), p.lr_decay = c.number("lr_decay"), p.eps = c.number("eps");
    emit_update(c, "adagrad", {"sum"}, p, offsetof(nn_adagrad_params, step));
}

const OpRegistrar adagrad_ = Op{
    .doc = R"(adagrad_(param!, sum!, grad, norm?, master?!) -> param
One step of Adagrad in place (Duchi et al. 2011), as torch.optim.Adagrad: the gradient is divided by
the root of the sum of its squares; the learning rate is lr / (1 + (step - 1) lr_decay).
weight_decay is added to the gradient. clip and master as in adamw_. Error: sum or grad of another
shape than param.
    local w, sum = nn.ones(2), nn.zeros(2)
    nn.adagrad_(w, sum, nn.tensor{0.5, -2}, {lr = 0.1, step = 1})  --> {0.9, 1.1})",
    .attributes = {lr_attribute,
                   {"step", "number", "", "number of this step, from 1"},
                   {"lr_decay", "number", "0", "decay of the learning rate"},
                   {"eps", "number", "1e-10", "added to the root"},
                   decay_attribute,
                   clip_attribute,
                   skip_attribute},
    .samples = {"{param={5,7}, sum={5,7,lo=0,hi=1}, grad={5,7}, lr=0.01, step=3, lr_decay=0.1}"},
    .changes_parameters = true,
    .run = run_adagrad,
    .category = "optimizers",
    .kernels = {"adagrad"},
};

// The sum of squares of a tensor, as an f64 scalar.
Tensor sum_of_squares(const Tensor& x) {
    const Tensor sum(Grid(), Dtype::f64);
    for (int64_t i = 0; i < x.tiles(); ++i)
        task("sumsq", x.dtype())
            .use({adds(sum, 0, i == 0), reads(x, i)})
            .params(nn_sumsq_params{x.block(i).count(), i == 0})
            .emit(i, x.block(i).extent, 2);
    return sum;
}

void run_grad_norm(Call& c) {
    std::vector<Tensor> squares;  // one sum per tensor, so that they are independent
    for (const Tensor& x : c.all()) {
        c.need(is_float(x.dtype()), "a tensor is {}; floats are needed", x.dtype());
        squares.push_back(sum_of_squares(x));
    }
    const Tensor norm(Grid(), Dtype::f64);
    constexpr size_t at_once = 14;
    for (size_t from = 0; from < squares.size(); from += at_once) {
        const size_t to = std::min(from + at_once, squares.size());
        TaskBuilder builder = task("sum_scalars", Dtype::f64);
        builder.use(adds(norm, 0, from == 0));
        for (size_t i = from; i < from + at_once; ++i)
            builder.use(i < to ? reads(squares[i], 0) : absent());
        builder.params(nn_sum_scalars_params{int32_t(to - from), from == 0, to == squares.size()})
            .emit();
    }
    c.result(norm);
}

const OpRegistrar grad_norm = Op{
    .doc = R"(grad_norm(tensors*) -> norm
sqrt of the sum of squares of all elements of all tensors, an f64 scalar.
    nn.grad_norm {nn.tensor{3}, nn.tensor{4}}  --> 5)",
    .samples = {"{tensors={{3,5},{7}}}"},
    .no_gradient = "is for clipping, which is not differentiated",
    .run = run_grad_norm,
    .category = "optimizers",
    .kernels = {"sumsq", "sum_scalars"},
};

}  // namespace
}  // namespace nn
