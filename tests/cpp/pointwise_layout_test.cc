// How pointwise kernels read operands (broadcasting, strides, scalars, bool conditions), their
// results for NaN, infinities and large numbers, and their accuracy in float.
#include <functional>

#include "kernels/params/pointwise.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const double inf = std::numeric_limits<double>::infinity(),
             nan = std::numeric_limits<double>::quiet_NaN();

nn_pointwise_params shape(const std::vector<int64_t>& extents) {
    nn_pointwise_params p{};
    p.ndim = int64_t(extents.size());
    for (size_t d = 0; d < extents.size(); ++d) p.extent[d] = extents[d];
    return p;
}

// Gives operand k of p a random layout: broadcast along some axes, the others in any order. Returns
// its number of elements.
size_t random_layout(nn_pointwise_params& p, int k, Random& random) {
    std::vector<int64_t> order;
    for (int64_t d = 0; d < p.ndim; ++d) order.insert(order.begin() + random.integer(0, d), d);
    if (random.integer(0, 1))
        std::sort(order.rbegin(), order.rend());  // half of them in the usual order
    int64_t size = 1;
    for (int64_t d : order) {
        p.stride[k][d] = random.integer(0, 3) ? size : 0;
        if (p.stride[k][d]) size *= p.extent[d];
    }
    return size_t(size);
}

// f(a, b, c) at every index of p in row-major order.
template <class F>
Values walk(const nn_pointwise_params& p, const Tile& a, const Tile& b, const Tile& c, F f) {
    Values out;
    int64_t total = 1;
    for (int64_t d = 0; d < p.ndim; ++d) total *= p.extent[d];
    for (int64_t i = 0; i < total; ++i) {
        int64_t rest = i, at[3] = {};
        for (int64_t d = p.ndim - 1; d >= 0; rest /= p.extent[d--])
            for (int k = 0; k < 3; ++k) at[k] += rest % p.extent[d] * p.stride[k][d];
        const auto value = [&](const Tile& t, int k) {
            return p.scalar_mask >> k & 1 ? p.scalar[k] : t[size_t(at[k])];
        };
        out.push_back(f(value(a, 0), value(b, 1), value(c, 2)));
    }
    return out;
}

TEST_CASE("pointwise operands may be broadcast, permuted or scalars in any combination",
          "[sweep]") {
    each_variant(
        [](const Variant& v) {
            Random random(4);
            for (int trial = 0; trial < 60; ++trial) {
                nn_pointwise_params p{};
                p.ndim = random.integer(0, 4);
                for (int64_t d = 0; d < p.ndim; ++d)
                    p.extent[d] = random.integer(1, trial % 3 ? 9 : 150 / p.ndim);
                Tile a = v.tile(random.integers(random_layout(p, 0, random), 0, 100));
                Tile b = v.tile(random.integers(random_layout(p, 1, random), 0, 100));
                p.scalar_mask = random.integer(0, 3) ? 0 : int32_t(random.integer(1, 3));
                p.scalar[0] = 17, p.scalar[1] = 5;
                const Values want =
                    walk(p, a, b, b, [](double x, double y, double) { return x + y; });
                Tile y = v.output(want.size());
                CHECK(run(v, "add", p,
                          {&y, p.scalar_mask & 1 ? nullptr : &a,
                           p.scalar_mask & 2 ? nullptr : &b}) == "");
                INFO("trial " << trial);
                check_close("add", y, want, 0);
                Tile less = Tile::poisoned(Dtype::boolean, want.size());
                CHECK(run(v, "lt", p, {&less, &a, &b}) == "");
                check_close("lt", less,
                            walk(p, a, b, b, [](double x, double y, double) { return x < y; }), 0);
            }
        },
        {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::i32, Dtype::i64, Dtype::u8});
}

TEST_CASE("rows and columns broadcast over long tiles and over empty tiles") {
    each_variant([](const Variant& v) {
        Random random(5);
        nn_pointwise_params p = shape({7, 2500});
        p.stride[0][0] = 2500, p.stride[0][1] = 1, p.stride[1][1] = 1;
        Tile a = v.tile(random.integers(7 * 2500, -50, 50)),
             row = v.tile(random.integers(2500, -50, 50));
        Tile y = v.output(a.size());
        const auto difference = [](double x, double z, double) { return x - z; };
        CHECK(run(v, "sub", p, {&y, &a, &row}) == "");
        check_close("row", y, walk(p, a, row, row, difference), 0);
        p.stride[1][0] = 1, p.stride[1][1] = 0;
        CHECK(run(v, "sub", p, {&y, &a, &row}) == "");
        check_close("column", y, walk(p, a, row, row, difference), 0);
        p.extent[0] = 0;
        Tile nothing = v.output(0);
        CHECK(run(v, "sub", p, {&nothing, &a, &row}) == "");
    });
}

TEST_CASE("where takes a bool condition, broadcast or not, whatever the dtype of its values") {
    each_variant(
        [](const Variant& v) {
            Random random(6);
            for (int trial = 0; trial < 20; ++trial) {
                nn_pointwise_params p = shape({random.integer(1, 9), random.integer(1, 200)});
                Tile c(Dtype::boolean, random.integers(random_layout(p, 0, random), 0, 1));
                Tile a = v.tile(random.integers(random_layout(p, 1, random), 0, 100));
                Tile b = v.tile(random.integers(random_layout(p, 2, random), 0, 100));
                if (trial % 4 == 0) p.scalar_mask = 4, p.scalar[2] = 3;
                const auto choose = [](double x, double yes, double no) { return x ? yes : no; };
                const Values want = walk(p, c, a, b, choose);
                Tile y = v.output(want.size());
                CHECK(run(v, "where", p, {&y, &c, &a, p.scalar_mask ? nullptr : &b}) == "");
                check_close("where", y, want, 0);
            }
        },
        {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::i32, Dtype::i64, Dtype::u8, Dtype::boolean});
}

TEST_CASE("backward kernels take scalars and broadcast operands") {
    each_variant([](const Variant& v) {
        nn_pointwise_params p = shape({2, 3});
        p.stride[0][0] = 3, p.stride[0][1] = 1, p.stride[2][1] = 1;  // dy contiguous, b a row
        Tile dy = v.tile({1, 2, 3, 4, 5, 6}), b = v.tile({2, 4, 8}), da = v.output(6);
        CHECK(run(v, "mul_backward_a", p, {&da, &dy, nullptr, &b, nullptr}) == "");
        CHECK(da.values() == Values{2, 8, 24, 8, 20, 48});
        p.scalar_mask = 1 << 2, p.scalar[2] = 0.5;
        CHECK(run(v, "mul_backward_a", p, {&da, &dy, nullptr, nullptr, nullptr}) == "");
        CHECK(da.values() == Values{0.5, 1, 1.5, 2, 2.5, 3});
    });
}

TEST_CASE("a pointwise kernel reports a wrong call") {
    const Variant f32{&cpu_target(), Dtype::f32}, i64{&cpu_target(), Dtype::i64};
    Tile x = f32.tile({1, 2}), y = f32.output(2), n = i64.tile({1, 2}), m = i64.output(2);
    nn_pointwise_params p = shape({2});
    p.stride[0][0] = p.stride[1][0] = 1;
    CHECK(run(f32, "add", p, {&y, &x, nullptr}) ==
          "operand 2 is missing and no scalar replaces it");
    CHECK(run(i64, "exp", p, {&m, &n}) == "takes f32, f64 or bf16, not i64");
}

// y of a unary op; of a binary one with both operands.
Values values_of(const Variant& v, const std::string& name, const Values& a, const Values& b = {}) {
    nn_pointwise_params p = shape({int64_t(a.size())});
    p.stride[0][0] = p.stride[1][0] = 1;
    Tile ta = v.tile(a), tb = v.tile(b), y = v.output(a.size());
    std::vector<Tile*> operands = {&y, &ta};
    if (!b.empty()) operands.push_back(&tb);
    CHECK(run(v, name, p, operands) == "");
    return y.values();
}

TEST_CASE("pointwise ops keep NaN and have the right limits") {
    const Values x = {nan, inf, -inf, 100, -100, 0};
    struct Row {
        const char* name;
        Values want;
    };
    const Row rows[] = {
        {"exp", {nan, inf, 0, inf, 0, 1}},
        {"expm1", {nan, inf, -1, inf, -1, 0}},
        {"tanh", {nan, 1, -1, 1, -1, 0}},
        {"sigmoid", {nan, 1, 0, 1, 0, 0.5}},
        {"erf", {nan, 1, -1, 1, -1, 0}},
        {"softplus", {nan, inf, 0, 100, 0, std::log(2.0)}},
        {"relu", {nan, inf, 0, 100, 0, 0}},
        {"log", {nan, inf, nan, std::log(100.0), nan, -inf}},
        {"sign", {0, 1, -1, 1, -1, 0}},
        {"log1p", {nan, inf, nan, std::log1p(100.0), nan, 0}},
        {"sqrt", {nan, inf, nan, 10, nan, 0}},
        {"rsqrt", {nan, 0, nan, 0.1, nan, inf}},
        {"floor", {nan, inf, -inf, 100, -100, 0}},
    };
    each_variant(
        [&](const Variant& v) {
            for (const Row& row : rows) {
                Values want = row.want;
                if (v.dtype == Dtype::f64 && row.name == std::string("exp"))
                    want[3] = std::exp(100.0);
                if (v.dtype == Dtype::f64 && row.name == std::string("expm1"))
                    want[3] = std::expm1(100.0);
                check_close(row.name, values_of(v, row.name, x), want, 1e-6,
                            1e-30 + (v.dtype == Dtype::f64));
            }
            for (const char* name : {"silu", "gelu", "gelu_exact"})
                check_close(name, values_of(v, name, {nan, 100, -100, 0}), {nan, 100, 0, 0}, 1e-6);
            CHECK(values_of(v, "round", {0.5, 1.5, 2.5, -0.5, -1.5}) == Values{0, 2, 2, -0.0, -2});
            check_close("maximum", values_of(v, "maximum", {nan, 1, -inf}, {1, nan, 2}),
                        {nan, nan, 2}, 0);
            check_close("minimum", values_of(v, "minimum", {nan, 1, -inf}, {1, nan, 2}),
                        {nan, nan, -inf}, 0);
            check_close("remainder", values_of(v, "remainder", {7, -7, 7, -7}, {3, 3, -3, -3}),
                        {1, 2, -2, -1}, 0);
            nn_pointwise_params p = shape({4});
            p.stride[0][0] = 1;
            Tile special = v.tile({nan, inf, -inf, 1}), yes = Tile::poisoned(Dtype::boolean, 4);
            run(v, "isnan", p, {&yes, &special});
            CHECK(yes.values() == Values{1, 0, 0, 0});
            run(v, "isfinite", p, {&yes, &special});
            CHECK(yes.values() == Values{0, 0, 0, 1});
        },
        {Dtype::f32, Dtype::f64});
}

TEST_CASE("float functions are within a few units in the last place over their whole range") {
    struct Row {
        const char* name;
        std::function<double(double)> exact;
        double lo, hi, ulps;
    };
    const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
    const auto gelu = [](double x) {
        return x / (1 + std::exp(-1.5957691216057308 * x * (1 + 0.044715 * x * x)));
    };
    const auto gelu_exact = [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2)); };
    const auto d = [](double (*f)(double)) { return f; };
    const Row rows[] = {
        {"exp", d(std::exp), -87, 88.7, 1.5},
        {"expm1", d(std::expm1), -30, 88.7, 2},
        {"expm1", d(std::expm1), -1e-3, 1e-3, 2},
        {"log", d(std::log), 1e-37, 100, 1.5},
        {"log", d(std::log), 0.7, 1.4, 1.5},
        {"log1p", d(std::log1p), -0.99, 100, 2},
        {"log1p", d(std::log1p), -1e-4, 1e-4, 2},
        {"tanh", d(std::tanh), -12, 12, 3},
        {"tanh", d(std::tanh), -1e-3, 1e-3, 3},
        {"erf", d(std::erf), -5, 5, 2},
        {"erf", d(std::erf), -1e-2, 1e-2, 2},
        {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -87, 100, 4},
        {"silu", silu, -85, 100, 4},
        {"softplus", [](double x) { return std::log1p(std::exp(x)); }, -87, 87, 3},
        {"gelu_exact", gelu_exact, -12, 100, 6},
        {"gelu", gelu, -2, 100, 10},
        {"gelu", gelu, -9, -2, 300},  // the argument's rounding, times an argument of up to 60
    };
    for (const Target* target : usable_targets(Device::cpu)) {
        const Variant v{target, Dtype::f32};
        INFO(target->name);
        Random random(7);
        for (const Row& row : rows) {
            const Tile x = v.tile(random.values(20000, row.lo, row.hi));
            const Values got = values_of(v, row.name, x.values());
            Values want;
            for (size_t i = 0; i < x.size(); ++i) want.push_back(row.exact(x[i]));
            check_close(row.name, got, want, row.ulps * 0x1p-23,
                        0);  // one ulp is at most 2^-23 of a value
        }
    }
}

}  // namespace
