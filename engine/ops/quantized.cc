// Weights of 8 bits for generating text: quantizing a matrix, and the product with it.
#include "engine/ops/glu.h"
#include "engine/rules/rules.h"
#include "kernels/params/gemm_bytes.h"
#include "kernels/params/rows.h"
#include "kernels/team.h"

namespace nn {
namespace {

void run_quantize(Call& c) {
    c.need_float("x");
    c.need(c.in("x").rank() == 2, "x is {}; it must be a matrix", c.in("x"));
    const Tensor x = whole_axis(c.in("x"), 1);
    const Tensor y(x.grid(), Dtype::u8), scale(Grid({x.grid().axes[0]}), accumulator(x.dtype()));
    for (int64_t i = 0; i < x.tiles(); ++i) {
        const Block block = x.block(i);
        task("quantize_rows", x.dtype())
            .use({writes(y, i), writes(scale, i), reads(x, i)})
            .params(nn_rows_params{block.extent[0], block.extent[1]})
            .emit(i, block.extent, 4);
    }
    c.results = {y, scale};
}

const OpRegistrar quantize = Op{
    .doc = R"(quantize(x) -> y~, scale~
Rounds each row of a matrix x to multiples of its scale, its largest absolute value / 127: x is
about (y - 128) scale, with y (u8) of the shape of x, and scale of one element per row. A row with
NaN or an infinity has the scale NaN. Error: x is not a matrix.
    local y, scale = nn.quantize(nn.tensor{{1, -2, 0}})
    y  --> {{192, 1, 128}}
    scale * 127  --> {2})",
    .samples = {"{x={5,7}}", "{x={9,64}}"},
    .no_gradient = "rounds",
    .run = run_quantize,
    .category = "products",
    .kernels = {"quantize_rows"},
};

Tensor product_of_bytes(const Tensor& x, const Tensor& weight, const Tensor& scale,
                        const Tensor& bias, bool gelu) {
    const Tensor y(Grid({x.grid().axes[0], weight.grid().axes[0]}), x.dtype());
    for (int64_t i = 0; i < y.tiles(); ++i) {
        const Dims at = y.grid().index(i);
        const Block block = y.block(i);
        const nn_gemm_bytes_params p{block.extent[0], block.extent[1], x.dim(1), gelu};
        task("gemm_bytes", x.dtype())
            .use({writes(y, i), reads(x, at[0]), reads(weight, at[1]), reads(scale, at[1])})
            .use(bias ? reads(bias, at[1]) : absent())
            .params(p)
            .splits(p.m <= team::few_rows)
            .emit(i, block.extent, 2.0 * double(p.k));
    }
    return y;
}

void run_quantized_linear(Call& c) {
    const Tensor weight = whole_axis(c.in("weight"), 1);
    const int64_t outputs = weight.dim(0), inputs = weight.dim(1);
    Dims shape = c.in("x").shape();
    c.need_float("x");
    c.need_dtype("weight", Dtype::u8);
    c.need(c.in("x").rank() >= 1 && shape.back() == inputs,
           "x is {}, weight is {}; the last size of x must be {}", c.in("x"), weight, inputs);
    c.need_tensor("scale", {outputs}, accumulator(c.in("x").dtype()));
    c.need_tensor("bias", {outputs}, c.in("x").dtype());
    c.need(c.in("bias") || !c.flag("gelu"), "gelu needs a bias");
    const int32_t gate = glu_activation(c, "glu");
    c.need(gate < 0 || (!c.flag("gelu") && outputs % 2 == 0),
           "weight is {}; glu needs an even number of outputs, and no gelu", weight);
    const auto& cuts = weight.grid().axes[0];
    const Tensor bias = c.in("bias") ? recut(c.in("bias"), 0, cuts) : Tensor();
    Tensor y = product_of_bytes(whole_axis(as_rows(c.in("x")), 1), weight,
                                recut(c.in("scale"), 0, cuts), bias, c.flag("gelu"));
    if (gate >= 0) y = glu(y, gate);
    shape.back() = y.dim(1);
    c.result(reshape(y, shape));
}

const OpRegistrar quantized_linear = Op{
    .doc = R"(quantized_linear(x, weight, scale, bias?) -> y
linear with a weight (u8) and its scale from quantize: y = x W^T + bias for W = (weight - 128)
scale. The product is computed in x's dtype. Error: a weight, scale or bias that does not fit.
    local weight, scale = nn.quantize(nn.tensor{{3, 4}, {5, 6}})
    nn.quantized_linear(nn.tensor{{1, 2}}, weight, scale)  --> {{11.0, 17.0}})",
    .attributes = {{"gelu", "bool", "false", "apply GELU"},
                   {"glu", "text", "none", "apply glu with silu, gelu or gelu_exact"}},
    .samples = {"{x={2,5,7}, weight={3,7,bytes=true}, scale={3}, bias={3}}",
                "{x={30,7}, weight={3,7,bytes=true}, scale={3}}",
                "{x={4,7}, weight={6,7,bytes=true}, scale={6}, bias={6}, gelu=true}",
                "{x={5,7}, weight={6,7,bytes=true}, scale={6}, glu='silu'}"},
    .no_gradient = "is for inference",
    .run = run_quantized_linear,
    .category = "products",
    .kernels = {"gemm_bytes", "glu"},
};

}  // namespace
}  // namespace nn
