// Optimizer updates in place, the global gradient norm, and axpy. Learning rate and step number may
// be scalar slots, so that a compiled step reads their present values.
#include <algorithm>
#include <cstddef>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

void check_same(const Call& c, const char* name) {
    const Tensor &t = c.in(name), &param = c.in("param");
    c.need(!t || t.shape() == param.shape(), "%s is %s, param is %s; they must be equal", name,
           t ? to_string(t.shape()).c_str() : "", to_string(param.shape()).c_str());
}

Tensor norm_of(const Call& c) {
    const Tensor& norm = c.in("norm");
    c.need(!norm || (norm.count() == 1 && norm.dtype() == Dtype::f64),
           "norm must be the scalar that grad_norm returns");
    c.need(norm || (c.number("clip") == 0 && !c.flag("skip_nonfinite")),
           "clip and skip_nonfinite need norm, the result of grad_norm");
    return norm;
}

// Where a tile lies in its tensor, which random numbers depend on.
void set_place(nn_random_params& noise, const Block& block, const Dims& whole) {
    noise.ndim = int64_t(whole.size());
    std::copy(block.extent.begin(), block.extent.end(), noise.extent);
    std::copy(block.start.begin(), block.start.end(), noise.start);
    std::copy(whole.begin(), whole.end(), noise.whole);
}

void append(std::vector<Patch>& to, const std::vector<Patch>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

const Attribute lr_attribute = {"lr", "number", "", "learning rate"};
const Attribute decay_attribute = {"weight_decay", "number", "0", "weight decay"};
const Attribute clip_attribute = {"clip", "number", "0",
                                  "largest global gradient norm; 0: no clipping. Needs norm."};
const Attribute skip_attribute = {"skip_nonfinite", "bool", "false",
                                  "change nothing when norm is NaN or Inf"};

const OpRegistrar adamw_ = Op{
    .name = "adamw_",
    .doc =
        "adamw_(param, m, v, grad, norm, master, {lr, step, beta1=0.9, beta2=0.999, eps=1e-8, "
        "weight_decay=0, clip=0, "
        "skip_nonfinite=false, stochastic=false}) -> param\n"
        "One AdamW step in place (Loshchilov & Hutter 2019, arXiv 1711.05101; bias correction by "
        "step = 1, 2, ...). The "
        "gradient is scaled by min(1, clip / (norm + 1e-6)) on the way. master: f32 copy of a bf16 "
        "parameter, updated too. stochastic: a bf16 parameter without master is rounded up or "
        "down by chance, so that its mean is exact. A step that skip_nonfinite leaves out still "
        "counts in the bias correction."
        " Error: m, v or grad of another shape than param."
        "\n    local w, m, v = nn.ones(2), nn.zeros(2), nn.zeros(2)"
        "\n    nn.adamw_(w, m, v, nn.tensor{0.5, -2}, {lr = 0.1, step = 1})  --> {0.9, 1.1}",
    .inputs = {"param", "m", "v", "grad", "norm?", "master?"},
    .attributes = {lr_attribute,
                   {"step", "number", "", "number of this step, from 1"},
                   {"beta1", "number", "0.9", "decay of the mean"},
                   {"beta2", "number", "0.999", "decay of the mean square"},
                   {"eps", "number", "1e-8", "added to the root"},
                   decay_attribute,
                   clip_attribute,
                   skip_attribute,
                   {"stochastic", "bool", "false", "round a bf16 param by chance"}},
    .samples = {"{param={5,7}, m={5,7}, v={5,7,lo=0,hi=1}, grad={5,7}, lr=0.01, step=3, "
                "weight_decay=0.1}"},
    .no_gradient = "changes param in place",
    .run =
        [](Call& c) {
            for (const char* name : {"m", "v", "grad", "master"}) check_same(c, name);
            for (const char* name : {"param", "grad"}) c.need_float(name);
            c.need_owner("param");
            const Tensor& param = c.in("param");
            for (const char* name : {"m", "v"}) c.need_dtype(name, accumulator(param.dtype()));
            c.need_dtype("master", Dtype::f32);
            const Tensor m = c.in("m"), v = c.in("v"), master = c.in("master"), norm = norm_of(c);
            for (const Tensor& t : {m, v, master})
                c.need(!t || t.grid() == param.grid(),
                       "the state must be cut like param: make it with full_like(param, 0)");
            const Tensor grad = retile(c.in("grad"), param.grid());
            nn_adamw_params p{0,
                              c.number_or_scalar("lr"),
                              c.number("beta1"),
                              c.number("beta2"),
                              c.number("eps"),
                              c.number("weight_decay"),
                              c.number_or_scalar("step"),
                              c.number("clip"),
                              c.flag("skip_nonfinite"),
                              int32_t(grad.dtype()),
                              c.flag("stochastic"),
                              {}};
            std::vector<Patch> patches = c.patch("lr", offsetof(nn_adamw_params, lr));
            append(patches, c.patch("step", offsetof(nn_adamw_params, step)));
            if (p.stochastic) {
                c.need(param.dtype() == Dtype::bf16 && !master,
                       "stochastic is for a bf16 param without a master; param is %s%s",
                       dtype_name(param.dtype()), master ? " with one" : "");
                p.noise.seed = random_seed(), p.noise.counter = sink().next_random();
                patches.push_back(
                    {Patch::random_key, int32_t(offsetof(nn_adamw_params, noise.seed)), 0});
            }
            for (int64_t i = 0; i < param.tiles(); ++i) {
                const Block block = param.block(i);
                p.n = block.count();
                if (p.stochastic) set_place(p.noise, block, param.shape());
                task("adamw", param.dtype())
                    .use({updates(param.tile(i)), updates(m.tile(i)), updates(v.tile(i)),
                          reads(grad.tile(i))})
                    .use(norm ? reads(norm.tile(0)) : absent())
                    .use(master ? updates(master.tile(i)) : absent())
                    .params(p)
                    .patch(patches)
                    .flops(12.0 * double(p.n))
                    .tile(i, param.block(i).extent)
                    .emit();
            }
            for (const Tensor& t : {param, m, v, master})
                if (t) t.changed();
            c.result(param);
        },
    .category = "optimizers",
};

const OpRegistrar sgd_ = Op{
    .name = "sgd_",
    .doc =
        "sgd_(param, grad, velocity, norm, {lr, momentum=0, nesterov=false, weight_decay=0, "
        "first=false, clip=0, "
        "skip_nonfinite=false}) -> param\n"
        "One step of stochastic gradient descent in place; velocity is needed with momentum, and "
        "overwritten when first."
        " Error: a grad of another shape than param."
        "\n    nn.sgd_(nn.tensor{1, 2}, nn.tensor{5, 0}, {lr = 0.1})  --> {0.5, 2}",
    .inputs = {"param", "grad", "velocity?", "norm?"},
    .attributes = {lr_attribute,
                   {"momentum", "number", "0", "of the velocity"},
                   {"nesterov", "bool", "false", "look ahead"},
                   decay_attribute,
                   {"first", "bool", "false", "velocity holds nothing yet"},
                   clip_attribute,
                   skip_attribute},
    .samples = {"{param={5,7}, grad={5,7}, velocity={5,7}, lr=0.1, momentum=0.9}",
                "{param={5,7}, grad={5,7}, lr=0.1}"},
    .no_gradient = "changes param in place",
    .run =
        [](Call& c) {
            for (const char* name : {"grad", "velocity"}) check_same(c, name);
            for (const char* name : {"param", "grad"}) c.need_float(name);
            c.need_owner("param");
            c.need_dtype("velocity", accumulator(c.in("param").dtype()));
            const Tensor &param = c.in("param"), velocity = c.in("velocity"), norm = norm_of(c);
            const Tensor grad = retile(c.in("grad"), param.grid());
            c.need(c.number("momentum") == 0 || velocity,
                   "momentum needs a velocity: full_like(param, 0)");
            c.need(!velocity || velocity.grid() == param.grid(),
                   "velocity must be cut like param: full_like(param, 0)");
            nn_sgd_params p{0,
                            c.number_or_scalar("lr"),
                            c.number("momentum"),
                            c.number("weight_decay"),
                            c.number("clip"),
                            c.flag("nesterov"),
                            c.flag("first"),
                            c.flag("skip_nonfinite"),
                            int32_t(grad.dtype())};
            for (int64_t i = 0; i < param.tiles(); ++i) {
                p.n = param.block(i).count();
                task("sgd", param.dtype())
                    .use(updates(param.tile(i)))
                    .use(velocity ? updates(velocity.tile(i)) : absent())
                    .use(reads(grad.tile(i)))
                    .use(norm ? reads(norm.tile(0)) : absent())
                    .params(p)
                    .patch(c.patch("lr", offsetof(nn_sgd_params, lr)))
                    .flops(6.0 * double(p.n))
                    .tile(i, param.block(i).extent)
                    .emit();
            }
            param.changed();
            if (velocity) velocity.changed();
            c.result(param);
        },
    .category = "optimizers",
};

const OpRegistrar grad_norm = Op{
    .name = "grad_norm",
    .doc =
        "grad_norm(tensors) -> norm\nsqrt of the sum of squares of all elements of all tensors, an "
        "f64 scalar."
        "\n    nn.grad_norm {nn.tensor{3}, nn.tensor{4}}  --> 5",
    .inputs = {"tensors*"},
    .samples = {"{tensors={{3,5},{7}}}"},
    .no_gradient = "serves clipping, which is not differentiated",
    .run =
        [](Call& c) {
            std::vector<Tensor>
                squares;  // one partial sum a tensor, so that they proceed independently
            for (const Tensor& x : c.all()) {
                c.need(is_float(x.dtype()), "a tensor is %s; floats are needed",
                       dtype_name(x.dtype()));
                const Tensor sum(Grid(), Dtype::f64);
                for (int64_t i = 0; i < x.tiles(); ++i)
                    task("sumsq", x.dtype())
                        .use(i == 0 ? writes(sum.tile(0)) : updates(sum.tile(0)))
                        .use(reads(x.tile(i)))
                        .params(nn_sumsq_params{x.block(i).count(), i == 0})
                        .flops(2.0 * double(x.block(i).count()))
                        .tile(i, x.block(i).extent)
                        .emit();
                squares.push_back(sum);
            }
            const Tensor norm(Grid(), Dtype::f64);
            constexpr size_t at_once = 14;
            for (size_t from = 0; from < squares.size(); from += at_once) {
                const size_t to = std::min(from + at_once, squares.size());
                TaskBuilder builder = task("sum_scalars", Dtype::f64);
                builder.use(from == 0 ? writes(norm.tile(0)) : updates(norm.tile(0)));
                for (size_t i = from; i < from + at_once; ++i)
                    builder.use(i < to ? reads(squares[i].tile(0)) : absent());
                builder
                    .params(
                        nn_sum_scalars_params{int32_t(to - from), from == 0, to == squares.size()})
                    .emit();
            }
            c.result(norm);
        },
    .category = "optimizers",
    .kernels = {"sumsq", "sum_scalars"},
};

const OpRegistrar add_ = Op{
    .name = "add_",
    .doc =
        "add_(x, y) -> x\nx = x + y in place; y broadcasts to x's shape."
        " Error: y that does not."
        "\n    nn.zeros(2, 2):add_(nn.tensor{1, 2})  --> {{1, 2}, {1, 2}}",
    .inputs = {"x", "y"},
    .samples = {"{x={5,7}, y={5,7}}"},
    .no_gradient = "changes x in place",
    .run =
        [](Call& c) {
            c.need_owner("x");
            const Tensor &x = c.in("x"), &y = c.in("y");
            c.need(x.dtype() == y.dtype(), "x is %s, y is %s; the dtypes must be equal",
                   dtype_name(x.dtype()), dtype_name(y.dtype()));
            Dims both;
            c.need(broadcast(x.shape(), y.shape(), &both) && both == x.shape(),
                   "y of shape %s does not broadcast to x of shape %s",
                   to_string(y.shape()).c_str(), to_string(x.shape()).c_str());
            bool overlaps = false;  // y reads tiles of x at other places than it changes them
            for (int64_t i = 0; i < y.tiles() && y.grid() != x.grid(); ++i)
                for (int64_t k = 0; k < x.tiles(); ++k) overlaps |= y.tile(i) == x.tile(k);
            pointwise_into(x, "add", x.dtype(), {x, overlaps ? copied(y) : y});
            x.changed();
            c.result(x);
        },
    .category = "in place",
    .kernels = {"add"},
};

}  // namespace
}  // namespace nn
