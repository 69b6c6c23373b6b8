// Rotary position embedding of packed queries and keys.
#include "kernels/params/rope.h"

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

int32_t scaling_of(const Call& c) {
    const char* const names[] = {"none", "linear", "llama3", "yarn"};  // as nn_rope_plain, ...
    const std::string given = c.text("scaling");
    for (int32_t i = 0; i < 4; ++i)
        if (given == names[i]) return i;
    c.need(false, "scaling is '{}'; none, linear, llama3 or yarn is needed", given);
    return nn_rope_plain;
}

void read_frequencies(const Call& c, nn_rope_params& p) {
    p.base = c.number("base"), p.scale = c.number("scale"), p.factor = c.number("factor");
    p.low = c.number("low"), p.high = c.number("high"), p.original = c.number("original");
    p.scaling = scaling_of(c);
    c.need(p.base > 1, "base is {}; more than 1 is needed", p.base);
    c.need(p.factor > 0, "factor is {}; more than 0 is needed", p.factor);
    if (p.scaling != nn_rope_llama3 && p.scaling != nn_rope_yarn) return;
    c.need(p.original >= 1, "original is {}; {} needs the context length of the training",
           p.original, c.text("scaling"));
    c.need(p.low > 0 && p.high > p.low, "low is {}, high is {}; 0 < low < high is needed", p.low,
           p.high);
}

nn_rope_params params_of(const Call& c, const Tensor& x) {
    nn_rope_params p{};
    const int64_t heads = c.integer("heads");
    const int64_t kv_heads = c.given("kv_heads") ? c.integer("kv_heads") : heads;
    c.need(heads >= 1 && kv_heads >= 1 && heads <= x.dim(-1) && kv_heads <= x.dim(-1) &&
               x.dim(-1) % (heads + 2 * kv_heads) == 0,
           "the last size {} of x does not divide into {} query and 2 x {} key/value heads",
           x.dim(-1), heads, kv_heads);
    p.width = x.dim(-1), p.heads = heads + kv_heads;
    p.head_dim = p.width / (heads + 2 * kv_heads);
    p.rotated = c.given("rotated") ? c.integer("rotated") : p.head_dim;
    c.need(p.rotated >= 2 && p.rotated % 2 == 0 && p.rotated <= p.head_dim,
           "{} of the {} components of a head cannot rotate; an even number is needed", p.rotated,
           p.head_dim);
    read_frequencies(c, p);
    return p;
}

template <bool inverse> void run_rope(Call& c) {
    const char* const name = inverse ? "dy" : "x";
    c.need_float(name);
    c.need(c.in(name).rank() == 3,
           "{} is {}; it must be (batch, time, (heads + 2 kv_heads) head_dim)", name, c.in(name));
    const Tensor x = whole_axis(c.in(name), 2);
    nn_rope_params p = params_of(c, x);
    p.inverse = inverse;
    Tensor start = c.in("start");
    if (start) {
        c.need_shape("start", {x.dim(0)});
        c.need_ids("start");
        p.start_dtype = int32_t(start.dtype());
        start = recut(start, 0, x.grid().axes[0]);
    }
    const Tensor y(x.grid(), x.dtype());
    for (int64_t i = 0; i < x.tiles(); ++i) {
        const Block block = x.block(i);
        p.batch = block.extent[0], p.len = block.extent[1], p.start = block.start[1];
        task("rope", x.dtype())
            .use({writes(y, i), reads(x, i), reads(start, x.grid().index(i)[0])})
            .params(p)
            .emit(i, block.extent, 3);
    }
    c.result(y);
}

const std::vector<Attribute> attributes = {
    {"heads", "int", "", "query heads"},
    {"kv_heads", "int", "nil", "key/value heads, if fewer (grouped queries)"},
    {"rotated", "int", "nil", "components of a head that rotate, the first ones; all by default"},
    {"base", "number", "10000", "frequency i is base^(-2 i / rotated)"},
    {"scale", "number", "1", "of the rotated components"},
    {"scaling", "text", "none", "for longer contexts: none, linear, llama3 or yarn"},
    {"factor", "number", "1", "by which scaling divides frequencies"},
    {"low", "number", "1", "turns in `original` tokens below which all of a frequency is divided"},
    {"high", "number", "4", "turns from which on a frequency is kept"},
    {"original", "number", "0", "context length of the training, for llama3 and yarn"},
};

const OpRegistrar rope = Op{
    .doc = R"(rope(x, start?) -> y
Rotary position embedding (Su et al., arXiv:2104.09864) of the queries and keys in x (batch, time,
(heads + 2 kv_heads) head_dim), which attention takes; values are copied. At position t, components i
and i + rotated / 2 of a head turn by t times frequency i. The first token of a sequence is at
position 0, or start (batch) of i32 or i64. Error: sizes that do not divide.
    local qkv = nn.tensor{{{1, 0, 1, 0, 1, 0}, {1, 0, 1, 0, 1, 0}}}   -- one head of 2, two tokens
    (nn.rope(qkv, {heads = 1}))  --> {{{1, 0, 1, 0, 1, 0}, {0.54, 0.84, 0.54, 0.84, 1, 0}}})",
    .attributes = attributes,
    .samples = {"{x={2,7,24}, heads=2}", "{x={1,9,20}, heads=3, kv_heads=1, rotated=2, scale=1.5}",
                "{x={3,5,24}, start={3,below=90}, heads=2, kv_heads=1}",
                "{x={1,6,24}, heads=1, scaling='llama3', factor=8, original=32, base=100}",
                "{x={1,6,24}, heads=1, scaling='yarn', factor=4, high=32, original=64}",
                "{x={1,6,12}, heads=2, scaling='linear', factor=2}"},
    .run = run_rope<false>,
    .category = "layers",
};

const OpRegistrar rope_backward = Op{
    .doc = R"(rope_backward(dy, start?) -> dx
The gradient of rope: it turns back by the same angles.
    nn.rope_backward(nn.ones(1, 2, 6), {heads = 1}):dims()  --> 1, 2, 6)",
    .attributes = attributes,
    .gradient_of = "rope",
    .gradient_in = "x",
    .run = run_rope<true>,
    .kernels = {"rope"},
};

}  // namespace
}  // namespace nn
