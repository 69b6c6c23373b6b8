// Ops that make tensors from nothing, or fill one in place.
#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

const Attribute shape_attribute = {"shape", "ints", "", "sizes of the axes"};
const Attribute dtype_attribute = {"dtype", "dtype", "f32", "f32, f64, bf16, i32, i64, u8 or bool"};
const Attribute axes_attribute = {"axes", "text", "nil",
                                  "axis names, comma-separated, that nn.tiles knows"};

std::vector<std::string> split_names(const std::string& text) {
    std::vector<std::string> names;
    size_t start = 0;
    for (size_t at; (at = text.find(',', start)) != std::string::npos; start = at + 1)
        names.push_back(text.substr(start, at - start));
    names.push_back(text.substr(start));
    return names;
}

Tensor new_tensor(const Call& c) {
    const Dims shape = c.ints("shape");
    const Dtype dtype = c.dtype("dtype");
    const auto names = c.given("axes") ? split_names(c.text("axes")) : std::vector<std::string>();
    for (int64_t size : shape)
        c.need(size >= 1, "shape %s: every size must be at least 1", to_string(shape).c_str());
    return Tensor(choose_grid(shape, dtype, names), dtype);
}

void check_representable(const Call& c, Dtype dtype, double value) {
    c.need(representable(value, dtype), "dtype %s cannot hold %g", dtype_name(dtype), value);
}

void fill(const Call& c, const Tensor& x, double value) {
    check_representable(c, x.dtype(), value);
    for (int64_t i = 0; i < x.tiles(); ++i) fill_tile(x, i, value);
}

// One random kernel over every tile of y; x is there for dropout.
// Not fixed: a recording that runs again takes the next key.
void randomise(const char* kernel, const Tensor& y, const Tensor& x, double a, double b,
               uint64_t counter, uint64_t seed = random_seed(), bool fixed = false) {
    const std::vector<Patch> key{{Patch::random_key, int32_t(offsetof(nn_random_params, seed)), 0}};
    for (int64_t i = 0; i < y.tiles(); ++i) {
        const Block block = y.block(i);
        nn_random_params p{};
        p.seed = seed;
        p.counter = counter;
        p.ndim = int64_t(y.rank());
        std::copy(block.extent.begin(), block.extent.end(), p.extent);
        std::copy(block.start.begin(), block.start.end(), p.start);
        std::copy(y.shape().begin(), y.shape().end(), p.whole);
        p.a = a, p.b = b;
        TaskBuilder builder = task(kernel, y.dtype());
        builder.use(writes(y.tile(i)));
        if (x) builder.use(reads(x.tile(i)));
        builder.params(p)
            .patch(fixed ? std::vector<Patch>() : key)
            .flops(10.0 * double(block.count()))
            .tile(i, block.extent)
            .emit();
    }
}

const OpRegistrar empty = Op{
    .name = "empty",
    .doc =
        "empty(shape, {dtype=\"f32\", axes}) -> y\n"
        "A tensor without values, to be filled by an op that ends in '_'. Reading it before is an "
        "error."
        "\n    nn.empty(2, 3):fill_(1):sum()  --> 6",
    .inputs = {},
    .attributes = {shape_attribute, dtype_attribute, axes_attribute},
    .samples = {},
    .no_gradient = "makes a leaf",
    .run = [](Call& c) { c.result(new_tensor(c)); },
    .category = "creation",
};

const OpRegistrar full = Op{
    .name = "full",
    .doc =
        "full(shape, value, {dtype=\"f32\", axes}) -> y\nA tensor with the same value everywhere."
        "\n    nn.full({2, 2}, 7)  --> {{7, 7}, {7, 7}}",
    .inputs = {},
    .attributes = {shape_attribute,
                   {"value", "number", "", "the value"},
                   dtype_attribute,
                   axes_attribute},
    .samples = {"{shape={3,5}, value=2.5}"},
    .no_gradient = "makes a leaf",
    .run =
        [](Call& c) {
            Tensor y = new_tensor(c);
            fill(c, y, c.number("value"));
            c.result(y);
        },
    .category = "creation",
    .kernels = {"fill"},
};

const OpRegistrar full_like = Op{
    .name = "full_like",
    .doc =
        "full_like(x, value, {dtype}) -> y\nA tensor of x's shape and tiling with the same value "
        "everywhere."
        "\n    nn.full_like(nn.zeros(2), 3)  --> {3, 3}",
    .inputs = {"x"},
    .attributes = {{"value", "number", "", "the value"},
                   {"dtype", "dtype", "nil", "x's when not given"}},
    .samples = {"{x={3,5}, value=-1}"},
    .no_gradient = "its result does not depend on x's values",
    .run =
        [](Call& c) {
            Tensor y(c.in("x").grid(), c.given("dtype") ? c.dtype("dtype") : c.in("x").dtype());
            fill(c, y, c.number("value"));
            c.result(y);
        },
    .category = "creation",
    .kernels = {"fill"},
};

const OpRegistrar fill_ = Op{
    .name = "fill_",
    .doc =
        "fill_(x, value) -> x\nSets every element of x."
        "\n    nn.empty(2):fill_(7)  --> {7, 7}",
    .inputs = {"x"},
    .attributes = {{"value", "number", "", "the value"}},
    .samples = {"{x={3,5}, value=7}"},
    .no_gradient = "changes x in place",
    .run =
        [](Call& c) {
            c.need_owner("x");
            fill(c, c.in("x"), c.number("value"));
            c.in("x").changed();
            c.result(c.in("x"));
        },
    .category = "in place",
    .kernels = {"fill"},
};

const OpRegistrar arange = Op{
    .name = "arange",
    .doc =
        "arange(count, {start=0, step=1, dtype=\"f32\", axes}) -> y\ny[i] = start + (i - 1) * "
        "step, `count` of them."
        " Unlike PyTorch's it takes no end; further numbers are refused."
        "\n    nn.arange(4, {start = 1, step = 0.5})  --> {1, 1.5, 2, 2.5}",
    .inputs = {},
    .attributes = {{"count", "int", "", "how many"},
                   {"start", "number", "0", "the first value"},
                   {"step", "number", "1", "the difference of neighbours"},
                   dtype_attribute,
                   axes_attribute},
    .samples = {"{count=7, start=2, step=0.5}"},
    .no_gradient = "makes a leaf",
    .run =
        [](Call& c) {
            const int64_t count = c.integer("count");
            c.need(count >= 1, "count is %lld; at least 1 is needed", (long long)count);
            const Dtype dtype = c.dtype("dtype");
            check_representable(c, dtype, c.number("start"));
            check_representable(c, dtype, c.number("step"));
            Tensor y(choose_grid({count}, dtype,
                                 c.given("axes") ? split_names(c.text("axes"))
                                                 : std::vector<std::string>()),
                     dtype);
            for (int64_t i = 0; i < y.tiles(); ++i) {
                const Block block = y.block(i);
                const double start = c.number("start") + c.number("step") * double(block.start[0]);
                task("arange", dtype)
                    .use(writes(y.tile(i)))
                    .params(nn_arange_params{block.count(), start, c.number("step")})
                    .tile(i, block.extent)
                    .emit();
            }
            c.result(y);
        },
    .category = "creation",
};

const OpRegistrar uniform = Op{
    .name = "uniform",
    .doc =
        "uniform(shape, {low=0, high=1, dtype=\"f32\", axes}) -> y\n"
        "Independent values, uniform in [low, high); in bf16 one may round to high. Philox: the "
        "seed, the call and the element "
        "decide, not the tiling."
        "\n    nn.uniform({2, 3}, {low = -1, high = 1}):dims()  --> 2, 3",
    .inputs = {},
    .attributes = {shape_attribute,
                   {"low", "number", "0", "lower end"},
                   {"high", "number", "1", "upper end"},
                   dtype_attribute,
                   axes_attribute},
    .samples = {"{shape={3,5}}"},
    .no_gradient = "makes a leaf",
    .run =
        [](Call& c) {
            Tensor y = new_tensor(c);
            c.need(is_float(y.dtype()), "dtype %s: a float dtype is needed", dtype_name(y.dtype()));
            randomise("random_uniform", y, {}, c.number("low"), c.number("high"),
                      sink().next_random());
            c.result(y);
        },
    .category = "random",
    .kernels = {"random_uniform"},
};

const OpRegistrar normal = Op{
    .name = "normal",
    .doc =
        "normal(shape, {mean=0, std=1, dtype=\"f32\", axes}) -> y\n"
        "Independent normal values (Box-Muller over Philox: the seed, the call and the element "
        "decide, not the tiling)."
        "\n    nn.normal({2, 3}, {std = 0.02}):dims()  --> 2, 3",
    .inputs = {},
    .attributes = {shape_attribute,
                   {"mean", "number", "0", "mean"},
                   {"std", "number", "1", "standard deviation"},
                   dtype_attribute,
                   axes_attribute},
    .samples = {"{shape={3,5}}"},
    .no_gradient = "makes a leaf",
    .run =
        [](Call& c) {
            Tensor y = new_tensor(c);
            c.need(is_float(y.dtype()), "dtype %s: a float dtype is needed", dtype_name(y.dtype()));
            randomise("random_normal", y, {}, c.number("mean"), c.number("std"),
                      sink().next_random());
            c.result(y);
        },
    .category = "random",
    .kernels = {"random_normal"},
};

const OpRegistrar normal_ = Op{
    .name = "normal_",
    .doc =
        "normal_(x, {mean=0, std=1}) -> x\nFills x with independent normal values; see normal."
        "\n    nn.empty(2, 3):normal_{std = 0.02}:dims()  --> 2, 3",
    .inputs = {"x"},
    .attributes = {{"mean", "number", "0", "mean"}, {"std", "number", "1", "standard deviation"}},
    .samples = {"{x={3,5}}"},
    .no_gradient = "changes x in place",
    .run =
        [](Call& c) {
            c.need_owner("x");
            c.need_float("x");
            randomise("random_normal", c.in("x"), {}, c.number("mean"), c.number("std"),
                      sink().next_random());
            c.in("x").changed();
            c.result(c.in("x"));
        },
    .category = "in place",
    .kernels = {"random_normal"},
};

// The mask is never stored: backward draws it again from the same counter, which is why it is an
// attribute.
const OpRegistrar dropout = Op{
    .name = "dropout",
    .doc =
        "dropout(x, p, {counter, seed}) -> y\n"
        "y = x / (1 - p) with probability 1 - p, else 0. The mask is a function of the seed, the "
        "counter (a new one each "
        "call when not given) and the element. While nn.training(false) holds, layers do not call "
        "it."
        "\n    nn.ones(100):dropout(0.5):max()  --> 2",
    .inputs = {"x"},
    .attributes = {{"p", "number", "", "probability of a zero, in [0, 1)"},
                   {"counter", "int", "nil", "with seed: draws the mask of an earlier call again"},
                   {"seed", "int", "nil", "the session's when not given"}},
    .samples = {"{x={7,9}, p=0.25}"},
    .run =
        [](Call& c) {
            c.need_float("x");
            const double p = c.number("p");
            c.need(p >= 0 && p < 1, "p is %g; it must be in [0, 1)", p);
            const Tensor& x = c.in("x");
            Tensor y(x.grid(), x.dtype());
            randomise("dropout", y, x, p, 0,
                      c.given("counter") ? uint64_t(c.integer("counter")) : sink().next_random(),
                      c.given("seed") ? uint64_t(c.integer("seed")) : random_seed(),
                      c.given("seed"));
            c.result(y);
        },
    .category = "random",
};

}  // namespace
}  // namespace nn
