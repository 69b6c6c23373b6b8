// Gated linear units: SwiGLU and GeGLU (Shazeer, arXiv:2002.05202).
#include "engine/ops/glu.h"

#include "engine/rules/rules.h"
#include "kernels/params/glu.h"

namespace nn {
namespace {

void run_glu(Call& c) {
    const Tensor& x = c.in("x");
    c.need_float("x");
    c.need(x.rank() >= 1 && x.dim(-1) % 2 == 0, "x is {}; its last size must be even", x);
    const int32_t activation = glu_activation(c, "activation");
    c.need(activation >= 0, "activation is 'none'; silu, gelu or gelu_exact is needed");
    c.result(glu(x, activation));
}

const Attribute activation = {"activation", "text", "silu", "f: silu, gelu or gelu_exact"};

const OpRegistrar glu_op = Op{
    .doc = R"(glu(x) -> y
y = f(gate) up for x (..., 2 n) = [gate, up]: SwiGLU with silu, GeGLU with gelu (the tanh form) or
gelu_exact. y is (..., n). nn.Linear with glu applies it to its result. Error: an odd last size.
    nn.glu(nn.tensor{{-1, 2, 3, 10}})  --> {{-0.8068, 17.616}})",
    .attributes = {activation},
    .samples = {"{x={2,3,8}}", "{x={5,6}, activation='gelu'}",
                "{x={5,2}, activation='gelu_exact'}"},
    .run = run_glu,
    .category = "layers",
};

void run_glu_backward(Call& c) {
    const Tensor& x = c.in("x");
    c.need_float("x");
    c.need(x.rank() >= 1 && x.dim(-1) % 2 == 0, "x is {}; its last size must be even", x);
    Dims shape = x.shape();
    shape.back() /= 2;
    c.need_tensor("dy", shape, x.dtype());
    const int32_t activation = glu_activation(c, "activation");
    c.need(activation >= 0, "activation is 'none'; silu, gelu or gelu_exact is needed");
    c.result(glu_backward(c.in("dy"), x, activation, nullptr));
}

const OpRegistrar glu_backward_op = Op{
    .doc = R"(glu_backward(dy, x) -> dx
The gradient of glu.
    nn.glu_backward(nn.ones(2, 3), nn.randn(2, 6)):dims()  --> 2, 6)",
    .attributes = {activation},
    .gradient_of = "glu",
    .gradient_in = "x",
    .run = run_glu_backward,
};

}  // namespace

int32_t glu_activation(const Call& c, const char* name) {
    const char* const names[] = {"silu", "gelu", "gelu_exact"};  // as nn_glu_silu, ...
    const std::string given = c.text(name);
    for (int32_t i = 0; i < 3; ++i)
        if (given == names[i]) return i;
    c.need(given == "none", "{} is '{}'; silu, gelu or gelu_exact is needed", std::string(name),
           given);
    return -1;
}

Tensor glu(const Tensor& packed, int32_t activation) {
    const Tensor x = whole_axis(packed, int(packed.rank()) - 1);
    const int64_t cols = x.dim(-1) / 2;
    const Tensor y(x.grid().with(-1, whole(cols)), x.dtype());
    for (int64_t i = 0; i < x.tiles(); ++i)
        task("glu", x.dtype())
            .use({writes(y, i), reads(x, i)})
            .params(nn_glu_params{rows_in(x, i), cols, activation, 0})
            .emit(i, y.block(i).extent, 8);
    return y;
}

Tensor glu_backward(const Tensor& dy_in, const Tensor& packed, int32_t activation, Tensor* sums) {
    const Tensor x = whole_axis(packed, int(packed.rank()) - 1);
    const int64_t cols = x.dim(-1) / 2;
    const Tensor dy = retile(dy_in, x.grid().with(-1, whole(cols))), dx(x.grid(), x.dtype());
    if (sums)
        *sums = Tensor(Grid({cut_every(x.grid().tiles(0), 1), whole(2 * cols)}),
                       accumulator(x.dtype()));
    for (int64_t i = 0; i < x.tiles(); ++i)
        task("glu_backward", x.dtype())
            .use({writes(dx, i), sums ? writes(*sums, i) : absent(), reads(dy, i), reads(x, i)})
            .params(nn_glu_params{rows_in(x, i), cols, activation, 1})
            .emit(i, dy.block(i).extent, 20);
    return dx;
}

}  // namespace nn
