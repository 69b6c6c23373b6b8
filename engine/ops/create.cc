// Ops that create tensors, or fill one in place.
#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"
#include "kernels/params/fill.h"
#include "kernels/params/random.h"

namespace nn {
namespace {

const Attribute shape_attribute = {"shape", "ints", "", "sizes of the axes"};
const Attribute dtype_attribute = {"dtype", "dtype", "f32", "f32, f64, bf16, i32, i64, u8 or bool"};
const Attribute axes_attribute = {"axes", "text", "nil",
                                  "axis names, comma-separated, that nn.tiles knows"};
const Attribute value_attribute = {"value", "number", "", "the value"};
const Attribute mean_attribute = {"mean", "number", "0", "mean"};
const Attribute std_attribute = {"std", "number", "1", "standard deviation"};

Tensor new_tensor(const Call& c, const Dims& shape) {
    std::vector<std::string> names;
    if (c.given("axes")) {
        const std::string text = c.text("axes") + ",";
        for (size_t start = 0, at; (at = text.find(',', start)) != text.npos; start = at + 1)
            names.push_back(text.substr(start, at - start));
    }
    for (int64_t size : shape) c.need(size >= 1, "shape {}: every size must be at least 1", shape);
    const Dtype dtype = c.dtype("dtype");
    return Tensor(choose_grid(shape, dtype, names), dtype);
}

Tensor new_tensor(const Call& c) { return new_tensor(c, c.ints("shape")); }

void fill(Call& c, const Tensor& x) {
    c.fill(x, "value");
    c.result(x);
}

// Emits a random kernel for every tile of y, with the seed, counter, a and b of p; x is the input
// of dropout. fixed: every replay uses the same numbers, not those of the next key.
void randomise(Call& c, const char* kernel, const Tensor& y, const Tensor& x, nn_random_params p,
               bool fixed) {
    std::vector<Patch> patches;
    if (!fixed) patches = {{Patch::random_key, int32_t(offsetof(nn_random_params, seed)), 0}};
    for (int64_t i = 0; i < y.tiles(); ++i) {
        const Block block = y.block(i);
        set_position(p, block, y.shape());
        TaskBuilder builder = task(kernel, y.dtype());
        builder.use(writes(y, i));
        if (x) builder.use(reads(x, i));
        builder.params(p).patch(patches).emit(i, block.extent, 10);
    }
    c.result(y);
}

// y filled with random numbers; a and b are the attributes with the parameters of the kernel.
void draw(Call& c, const char* kernel, const Tensor& y, const char* a, const char* b) {
    c.need(is_float(y.dtype()), "dtype {}: a float dtype is needed", y.dtype());
    nn_random_params p{};
    p.seed = random_seed(), p.a = c.number(a), p.b = c.number(b);
    p.counter = sink().next_random();
    randomise(c, kernel, y, {}, p, false);
}

const OpRegistrar empty = Op{
    .doc = R"(empty() -> y
A tensor without values. Reading it before an op has filled it in place is an error.
    nn.empty(2, 3):fill_(1):sum()  --> 6)",
    .attributes = {shape_attribute, dtype_attribute, axes_attribute},
    .no_samples = "its result has no values to compare",
    .run = [](Call& c) { c.result(new_tensor(c)); },
    .category = "creation",
};

const OpRegistrar full = Op{
    .doc = R"(full() -> y
A tensor with the same value everywhere.
    nn.full({2, 2}, 7)  --> {{7, 7}, {7, 7}})",
    .attributes = {shape_attribute, value_attribute, dtype_attribute, axes_attribute},
    .samples = {"{shape={3,5}, value=2.5}"},
    .run = [](Call& c) { fill(c, new_tensor(c)); },
    .category = "creation",
};

const OpRegistrar full_like = Op{
    .doc = R"(full_like(x) -> y
A tensor of x's shape and tiling with the same value everywhere.
    nn.full_like(nn.zeros(2), 3)  --> {3, 3})",
    .attributes = {value_attribute, {"dtype", "dtype", "nil", "x's by default"}},
    .samples = {"{x={3,5}, value=-1}"},
    .no_gradient = "does not depend on x's values",
    .run =
        [](Call& c) {
            const Tensor& x = c.in("x");
            fill(c, Tensor(x.grid(), c.given("dtype") ? c.dtype("dtype") : x.dtype()));
        },
    .category = "creation",
};

const OpRegistrar fill_ = Op{
    .doc = R"(fill_(x!) -> x
Sets every element of x.
    nn.empty(2):fill_(7)  --> {7, 7})",
    .attributes = {value_attribute},
    .samples = {"{x={3,5}, value=7}"},
    .run = [](Call& c) { fill(c, c.in("x")); },
};

void run_arange(Call& c) {
    const int64_t count = c.integer("count");
    c.need(count >= 1, "count is {}; at least 1 is needed", count);
    const Tensor y = new_tensor(c, {count});
    const double start = c.number("start"), step = c.number("step");
    for (double value : {start, step})
        c.need(representable(value, y.dtype()), "dtype {} cannot hold {}", y.dtype(), value);
    for (int64_t i = 0; i < y.tiles(); ++i) {
        const Block block = y.block(i);
        task("arange", y.dtype())
            .use(writes(y, i))
            .params(nn_arange_params{block.count(), start + step * double(block.start[0]), step})
            .emit(i, block.extent);
    }
    c.result(y);
}

const OpRegistrar arange = Op{
    .doc = R"(arange() -> y
y[i] = start + (i - 1) * step, `count` of them. Unlike PyTorch's it takes no end; further numbers
are an error.
    nn.arange(4, {start = 1, step = 0.5})  --> {1, 1.5, 2, 2.5})",
    .attributes = {{"count", "int", "", "number of elements"},
                   {"start", "number", "0", "the first value"},
                   {"step", "number", "1", "the difference of neighbours"},
                   dtype_attribute,
                   axes_attribute},
    .samples = {"{count=7, start=2, step=0.5}"},
    .run = run_arange,
    .category = "creation",
};

const OpRegistrar uniform = Op{
    .doc = R"(uniform() -> y
Independent values, uniform in [low, high); in bf16 one may round to high. Philox: they depend on
the seed, the call and the element, not on the tiling.
    nn.uniform({2, 3}, {low = -1, high = 1}):dims()  --> 2, 3)",
    .attributes = {shape_attribute,
                   {"low", "number", "0", "lower end"},
                   {"high", "number", "1", "upper end"},
                   dtype_attribute,
                   axes_attribute},
    .samples = {"{shape={3,5}}"},
    .run = [](Call& c) { draw(c, "random_uniform", new_tensor(c), "low", "high"); },
    .category = "random",
    .kernels = {"random_uniform"},
};

const OpRegistrar normal = Op{
    .doc = R"(normal() -> y
Independent normal values (Box-Muller over Philox): they depend on the seed, the call and the
element, not on the tiling.
    nn.normal({2, 3}, {std = 0.02}):dims()  --> 2, 3)",
    .attributes = {shape_attribute, mean_attribute, std_attribute, dtype_attribute, axes_attribute},
    .samples = {"{shape={3,5}}"},
    .run = [](Call& c) { draw(c, "random_normal", new_tensor(c), "mean", "std"); },
    .category = "random",
    .kernels = {"random_normal"},
};

const OpRegistrar normal_ = Op{
    .doc = R"(normal_(x!) -> x
Fills x with independent normal values; see normal.
    nn.empty(2, 3):normal_{std = 0.02}:dims()  --> 2, 3)",
    .attributes = {mean_attribute, std_attribute},
    .samples = {"{x={3,5}}"},
    .run =
        [](Call& c) {
            c.need_float("x");
            draw(c, "random_normal", c.in("x"), "mean", "std");
        },
    .kernels = {"random_normal"},
};

void run_dropout(Call& c) {
    c.need_float("x");
    nn_random_params p{};
    p.a = c.number("p");
    c.need(p.a >= 0 && p.a < 1, "p is {}; it must be in [0, 1)", p.a);
    p.counter = c.given("counter") ? uint64_t(c.integer("counter")) : sink().next_random();
    p.seed = c.given("seed") ? uint64_t(c.integer("seed")) : random_seed();
    const Tensor& x = c.in("x");
    randomise(c, "dropout", Tensor(x.grid(), x.dtype()), x, p, c.given("seed"));
}

// The mask is never stored: the gradient computes it again from the same counter.
const OpRegistrar dropout = Op{
    .doc = R"(dropout(x) -> y
y = x / (1 - p) with probability 1 - p, else 0. The mask is a function of the seed, the counter (a
new one each call if not given) and the element. After nn.training(false), layers do not call it.
    nn.ones(100):dropout(0.5):max()  --> 2)",
    .attributes = {{"p", "number", "", "probability of a zero, in [0, 1)"},
                   {"counter", "int", "nil", "with seed: the mask of an earlier call"},
                   {"seed", "int", "nil", "the session's by default"}},
    .samples = {"{x={7,9}, p=0.25}"},
    .mask = "p",
    .run = run_dropout,
    .category = "random",
};

}  // namespace
}  // namespace nn
