// Reductions against plain loops in double.
#include "kernels/params/reduce.h"

#include <functional>

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const double inf = std::numeric_limits<double>::infinity(),
             nan = std::numeric_limits<double>::quiet_NaN();
const std::initializer_list<Dtype> number_dtypes = {Dtype::f32, Dtype::f64, Dtype::bf16,
                                                    Dtype::i32, Dtype::i64, Dtype::u8};

enum Kind { sum, largest, smallest, product };
const char* const kind_names[] = {"sum", "max", "min", "product"};

double combine(int kind, double a, double b) {
    if (kind == sum) return a + b;
    if (kind == product) return a * b;
    if (std::isnan(a) || std::isnan(b)) return nan;
    return kind == largest ? std::fmax(a, b) : std::fmin(a, b);
}

Values reference(const Tile& x, int64_t outer, int64_t n, int64_t inner, int kind) {
    const double start[] = {0, -inf, inf, 1};
    Values y(size_t(outer * inner), start[kind]);
    for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < n; ++i)
            for (int64_t c = 0; c < inner; ++c) {
                double& cell = y[size_t(o * inner + c)];
                cell = combine(kind, cell, x[size_t((o * n + i) * inner + c)]);
            }
    return y;
}

Dtype out_dtype(const Variant& v, int kind) {
    return kind == sum || kind == product ? v.sum() : v.dtype;
}

// Small whole numbers, and for products numbers near 1 so that nothing overflows.
Values inputs(const Variant& v, int kind, int64_t n, Random& random) {
    if (kind != product) return random.integers(size_t(n), v.dtype == Dtype::u8 ? 0 : -50, 100);
    if (is_float(v.dtype)) return random.values(size_t(n), 0.95, 1.05);
    Values ones(size_t(n), 1);
    for (int64_t i = 0; i < n; i += 61) ones[size_t(i)] = 2;
    return ones;
}

struct Shape {
    int64_t outer, n, inner;
};
const Shape shapes[] = {{1, 1, 1},    {5, 3, 1},     {3, 63, 1}, {2, 64, 1},
                        {1, 5000, 1}, {2, 9001, 1},  {1, 1, 7},  {4, 5, 3},
                        {2, 70, 17},  {1, 130, 300}, {3, 2, 513}};

TEST_CASE("reductions over any axis equal the plain loop") {
    each_variant(
        [](const Variant& v) {
            Random random(1);
            for (const auto& [outer, n, inner] : shapes)
                for (int kind = 0; kind < 4; ++kind) {
                    if (kind == product && n > 1000) continue;
                    Tile x = v.tile(inputs(v, kind, outer * n * inner, random));
                    Tile y = Tile::poisoned(out_dtype(v, kind), size_t(outer * inner));
                    INFO(kind_names[kind] << " of (" << outer << "," << n << "," << inner << ")");
                    CHECK(run(v, "reduce", nn_reduce_params{outer, n, inner, 1, kind, 1},
                              {&y, &x}) == "");
                    const double tol = is_float(v.dtype) && kind == product ? 1e-5 : 0;
                    check_close("y", y, reference(x, outer, n, inner, kind), tol);
                }
        },
        number_dtypes);
}

TEST_CASE("reductions over tiles give the reduction of the whole") {
    each_variant(
        [](const Variant& v) {
            Random random(2);
            const int64_t parts[] = {5, 64, 1, 130};
            for (int64_t inner : {1, 9})
                for (int kind = 0; kind < 4; ++kind) {
                    Tile y = Tile::poisoned(out_dtype(v, kind), size_t(inner));
                    Values want;
                    for (size_t part = 0; part < 4; ++part) {
                        Tile x = v.tile(inputs(v, kind, parts[part] * inner, random));
                        const Values here = reference(x, 1, parts[part], inner, kind);
                        for (size_t c = 0; c < size_t(inner) && part; ++c)
                            want[c] = combine(kind, want[c], here[c]);
                        if (part == 0) want = here;
                        const nn_reduce_params p{1, parts[part], inner, 1, kind, part == 0};
                        CHECK(run(v, "reduce", p, {&y, &x}) == "");
                    }
                    INFO(kind_names[kind] << ", inner " << inner);
                    check_close("y", y, want, is_float(v.dtype) && kind == product ? 1e-5 : 0);
                }
        },
        number_dtypes);
}

TEST_CASE("a mean over tiles is a sum of scaled sums") {
    each_variant([](const Variant& v) {
        Tile x = v.tile({1, 2, 3, 4}), y = v.sum_output(1);
        CHECK(run(v, "reduce", nn_reduce_params{1, 4, 1, 0.125, sum, 1}, {&y, &x}) == "");
        CHECK(y[0] == 1.25);
        CHECK(run(v, "reduce", nn_reduce_params{1, 4, 1, 0.125, sum, 0}, {&y, &x}) == "");
        CHECK(y[0] == 2.5);
    });
}

TEST_CASE("sums of ten million floats have a relative error below 1e-6", "[sweep]") {
    for (const Target* target : usable_targets(Device::cpu)) {
        const Variant v{target, Dtype::f32};
        Random random(3);
        const Tile values = v.tile(random.values(10000, 0, 1));
        Tile x = v.output(10000000);
        double want = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            const double value = values[(i * 7 + i / 10000) % 10000];
            x.set(i, value);
            want += value;
        }
        Tile row = v.output(1), columns = v.output(10);
        CHECK(run(v, "reduce", nn_reduce_params{1, 10000000, 1, 1, sum, 1}, {&row, &x}) == "");
        CHECK(row[0] == Approx(want).epsilon(1e-6));
        CHECK(run(v, "reduce", nn_reduce_params{1, 1000000, 10, 1, sum, 1}, {&columns, &x}) == "");
        check_close("columns", columns, reference(x, 1, 1000000, 10, sum), 1e-6);
    }
}

TEST_CASE("bool counts as 0 and 1 in a sum, and a sum of integers does not overflow 32 bits") {
    each_variant(
        [](const Variant& v) {
            Tile x = v.tile(Values(1000, 1)), y = v.sum_output(1);
            CHECK(run(v, "reduce", nn_reduce_params{1, 1000, 1, 1, sum, 1}, {&y, &x}) == "");
            CHECK(y[0] == 1000);
        },
        {Dtype::boolean, Dtype::u8});
    each_variant(
        [](const Variant& v) {
            Tile x = v.tile(Values(100, 2e9)), y = v.sum_output(1);
            CHECK(run(v, "reduce", nn_reduce_params{1, 100, 1, 1, sum, 1}, {&y, &x}) == "");
            CHECK(y[0] == 2e11);
        },
        {Dtype::i32});
}

TEST_CASE("max and min are NaN if any element is") {
    each_variant([](const Variant& v) {
        for (size_t at : {0, 1, 63, 64, 99, 299})
            for (int kind : {largest, smallest}) {
                Values values(300, 1);
                values[at] = nan;
                Tile x = v.tile(values), y = v.output(1);
                CHECK(run(v, "reduce", nn_reduce_params{1, 300, 1, 1, kind, 1}, {&y, &x}) == "");
                CHECK(std::isnan(y[0]));
                Tile ones = v.tile(Values(300, 1));
                CHECK(run(v, "reduce", nn_reduce_params{1, 300, 1, 1, kind, 0}, {&y, &ones}) == "");
                CHECK(std::isnan(y[0]));
            }
        Tile x = v.tile({-inf, -inf}), y = v.output(1);
        CHECK(run(v, "reduce", nn_reduce_params{1, 2, 1, 1, largest, 1}, {&y, &x}) == "");
        CHECK(y[0] == -inf);
    });
}

// The first position of the largest or smallest; NaN is both.
int64_t arg_reference(const Tile& x, int64_t first, int64_t n, int64_t stride, int kind) {
    int64_t best = 0;
    for (int64_t i = 0; i < n; ++i) {
        const double value = x[size_t(first + i * stride)],
                     record = x[size_t(first + best * stride)];
        if (std::isnan(record)) break;
        if (std::isnan(value) || (kind == largest ? value > record : value < record)) best = i;
    }
    return best;
}

TEST_CASE("argreduce finds the first largest and smallest along any axis") {
    each_variant(
        [](const Variant& v) {
            Random random(4);
            for (const auto& [outer, n, inner] : shapes)
                for (int kind : {largest, smallest})
                    for (bool with_nan : {false, true}) {
                        Values values = random.integers(size_t(outer * n * inner), 0, 60);
                        if (with_nan && !is_float(v.dtype)) continue;
                        for (size_t i = 5; with_nan && i < values.size(); i += 997) values[i] = nan;
                        Tile x = v.tile(values), value = v.output(size_t(outer * inner));
                        Tile index = Tile::poisoned(Dtype::i64, size_t(outer * inner));
                        const nn_argreduce_params p{outer, n, inner, 1000, kind, 1};
                        CHECK(run(v, "argreduce", p, {&index, &value, &x}) == "");
                        Values want_index, want_value;
                        for (int64_t o = 0; o < outer; ++o)
                            for (int64_t c = 0; c < inner; ++c) {
                                const int64_t at =
                                    arg_reference(x, o * n * inner + c, n, inner, kind);
                                want_index.push_back(double(1000 + at));
                                want_value.push_back(x[size_t((o * n + at) * inner + c)]);
                            }
                        check_close("index", index, want_index, 0);
                        check_close("value", value, want_value, 0);
                    }
        },
        number_dtypes);
}

TEST_CASE("argreduce of tiles, in any order, gives the first position in the whole") {
    each_variant([](const Variant& v) {
        Tile low = v.tile({1, 7, 3}), high = v.tile({7, 2, 7}), x = v.tile({1, 7, 3, 7, 2, 7});
        for (bool backwards : {false, true}) {
            Tile index = Tile::poisoned(Dtype::i64, 1), value = v.output(1);
            for (int step : {0, 1}) {
                const bool upper = backwards ? step == 0 : step == 1;
                const nn_argreduce_params p{1, 3, 1, upper ? 3 : 0, largest, step == 0};
                CHECK(run(v, "argreduce", p, {&index, &value, upper ? &high : &low}) == "");
            }
            CHECK(index[0] == 1);
            CHECK(value[0] == 7);
        }
        Tile index = Tile::poisoned(Dtype::i64, 1), value = v.output(1), empty = v.output(0);
        const std::string error = run(v, "argreduce", nn_argreduce_params{1, 0, 1, 0, largest, 1},
                                      {&index, &value, &empty});
        CHECK(error == "an empty axis has no largest element");
    });
}

}  // namespace
