// The ops of kernels/pointwise.inc against the table below, which computes their definitions in
// double by the C library, and derivatives against central differences of the table. An op without
// a row in the table fails the first test.
#include "kernels/params/pointwise.h"

#include <functional>
#include <map>

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

enum Form { unary, flat, predicate, binary, compare, selection };
struct Entry {
    std::string name;
    Form form;
    bool any_dtype;
    double a_lo, a_hi, b_lo, b_hi;
    std::string needs_a, needs_b, doc;
};

const std::vector<Entry>& entries() {
    constexpr bool ANY = true, SAME = true, FLOATS = false;
    static const std::vector<Entry> list = {
#define UNARY(name, dtypes, lo, hi, f, df_dx, needs, doc) \
    {#name, unary, dtypes, lo, hi, 0, 0, needs, "", doc},
#define FLAT(name, dtypes, lo, hi, f, doc) {#name, flat, dtypes, lo, hi, 0, 0, "", "", doc},
#define PREDICATE(name, dtypes, lo, hi, f, doc) \
    {#name, predicate, dtypes, lo, hi, 0, 0, "", "", doc},
#define BINARY(name, dtypes, a_lo, a_hi, b_lo, b_hi, f, df_da, needs_a, df_db, needs_b, doc) \
    {#name, binary, dtypes, a_lo, a_hi, b_lo, b_hi, needs_a, needs_b, doc},
#define COMPARE(name, dtypes, f, doc) {#name, compare, dtypes, -2, 2, -2, 2, "", "", doc},
#define SELECT(name, dtypes, f, doc) {#name, selection, dtypes, -2, 2, -2, 2, "", "", doc},
#include "kernels/pointwise.inc"
    };
    return list;
}

const double pi = 3.14159265358979323846;

using Function = std::function<double(double, double)>;
const std::map<std::string, Function> references = {
    {"neg", [](double x, double) { return -x; }},
    {"abs", [](double x, double) { return std::fabs(x); }},
    {"square", [](double x, double) { return x * x; }},
    {"reciprocal", [](double x, double) { return 1 / x; }},
    {"sqrt", [](double x, double) { return std::sqrt(x); }},
    {"rsqrt", [](double x, double) { return std::pow(x, -0.5); }},
    {"exp", [](double x, double) { return std::exp(x); }},
    {"expm1", [](double x, double) { return std::expm1(x); }},
    {"log", [](double x, double) { return std::log(x); }},
    {"log1p", [](double x, double) { return std::log1p(x); }},
    {"sin", [](double x, double) { return std::sin(x); }},
    {"cos", [](double x, double) { return std::cos(x); }},
    {"tan", [](double x, double) { return std::tan(x); }},
    {"asin", [](double x, double) { return std::asin(x); }},
    {"acos", [](double x, double) { return std::acos(x); }},
    {"atan", [](double x, double) { return std::atan(x); }},
    {"sinh", [](double x, double) { return std::sinh(x); }},
    {"cosh", [](double x, double) { return std::cosh(x); }},
    {"exp2", [](double x, double) { return std::exp2(x); }},
    {"log2", [](double x, double) { return std::log2(x); }},
    {"log10", [](double x, double) { return std::log10(x); }},
    {"mish", [](double x, double) { return x * std::tanh(std::log(1 + std::exp(x))); }},
    {"trunc", [](double x, double) { return std::trunc(x); }},
    {"isinf", [](double x, double) { return std::isinf(x); }},
    {"clamp_min", [](double a, double b) { return std::fmax(a, b); }},
    {"clamp_max", [](double a, double b) { return std::fmin(a, b); }},
    {"leaky_relu", [](double a, double b) { return a > 0 ? a : a * b; }},
    {"elu", [](double a, double b) { return a > 0 ? a : b * std::expm1(a); }},
    {"atan2", [](double a, double b) { return std::atan2(a, b); }},
    {"tanh", [](double x, double) { return std::tanh(x); }},
    {"erf", [](double x, double) { return std::erf(x); }},
    {"sigmoid", [](double x, double) { return 1 / (1 + std::exp(-x)); }},
    {"softplus",
     [](double x, double) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }},
    {"relu", [](double x, double) { return x > 0 ? x : 0; }},
    {"silu", [](double x, double) { return x / (1 + std::exp(-x)); }},
    {"gelu",
     [](double x, double) {
         const double u = std::sqrt(2 / pi) * (x + 0.044715 * x * x * x);
         return u < 0 ? x / (1 + std::exp(-2 * u)) : 0.5 * x * (1 + std::tanh(u));
     }},
    {"gelu_exact", [](double x, double) { return 0.5 * x * std::erfc(-x / std::sqrt(2)); }},
    {"sign", [](double x, double) { return x > 0   ? 1
                                           : x < 0 ? -1
                                                   : 0; }},
    {"floor", [](double x, double) { return std::floor(x); }},
    {"ceil", [](double x, double) { return std::ceil(x); }},
    {"round", [](double x, double) { return x - std::remainder(x, 1); }},
    {"isnan", [](double x, double) { return std::isnan(x); }},
    {"isfinite", [](double x, double) { return std::isfinite(x); }},
    {"logical_not", [](double x, double) { return !x; }},
    {"add", [](double a, double b) { return a + b; }},
    {"sub", [](double a, double b) { return a - b; }},
    {"mul", [](double a, double b) { return a * b; }},
    {"div", [](double a, double b) { return a / b; }},
    {"pow", [](double a, double b) { return std::pow(a, b); }},
    {"remainder", [](double a, double b) { return a - b * std::floor(a / b); }},
    {"maximum", [](double a, double b) { return std::fmax(a, b); }},
    {"minimum", [](double a, double b) { return std::fmin(a, b); }},
    {"eq", [](double a, double b) { return a == b; }},
    {"ne", [](double a, double b) { return a != b; }},
    {"lt", [](double a, double b) { return a < b; }},
    {"le", [](double a, double b) { return a <= b; }},
    {"gt", [](double a, double b) { return a > b; }},
    {"ge", [](double a, double b) { return a >= b; }},
    {"logical_and", [](double a, double b) { return a && b; }},
    {"logical_or", [](double a, double b) { return a || b; }},
    {"logical_xor", [](double a, double b) { return !a != !b; }},
    {"where", [](double a, double) { return a; }},  // has a test of its own
};

nn_pointwise_params contiguous(size_t n) {
    nn_pointwise_params p{};
    p.ndim = 1;
    p.extent[0] = int64_t(n);
    for (auto& stride : p.stride) stride[0] = 1;
    return p;
}

bool is_bool(const Entry& e) { return e.form == predicate || e.form == compare; }
bool is_unary(const Entry& e) { return e.form <= predicate; }

// Runs one op on whole arrays of the variant's dtype.
Values forward(const Variant& v, const Entry& e, Tile& a, Tile& b) {
    Tile y = Tile::poisoned(is_bool(e) ? Dtype::boolean : v.dtype, a.size());
    std::vector<Tile*> operands = {&y, &a};
    if (!is_unary(e)) operands.push_back(&b);
    CHECK(run(v, e.name, contiguous(a.size()), operands) == "");
    return y.values();
}

Values apply(const Function& f, const Tile& a, const Tile& b) {
    Values out(a.size());
    for (size_t i = 0; i < a.size(); ++i) out[i] = f(a[i], b[i]);
    return out;
}

// A few roundings, of the result and of intermediate results.
double tolerance(Dtype dtype) {
    return dtype == Dtype::bf16 ? 0.004 : dtype == Dtype::f32 ? 1e-6 : 1e-14;
}

TEST_CASE("every pointwise op has a reference and a documented signature") {
    for (const Entry& e : entries()) {
        INFO(e.name);
        CHECK(references.count(e.name) == 1);
        CHECK(e.doc.substr(0, e.name.size() + 1) == e.name + "(");
        CHECK(e.doc.find(is_bool(e) ? ") -> bool: " : ") -> y: ") != std::string::npos);
        CHECK(find_kernel(e.name) != nullptr);
        CHECK((find_kernel(e.name + "_backward") != nullptr) == (e.form == unary));
        CHECK((find_kernel(e.name + "_backward_a") != nullptr) == (e.form == binary));
        CHECK((find_kernel(e.name + "_backward_b") != nullptr) == (e.form == binary));
    }
}

TEST_CASE("pointwise ops equal their formulas in every float dtype") {
    each_variant([](const Variant& v) {
        Random random(1);
        for (const Entry& e : entries()) {
            if (e.form == selection) continue;
            Tile a = v.tile(random.values(1031, e.a_lo, e.a_hi));
            Tile b = v.tile(random.values(1031, e.b_lo, e.b_hi));
            for (size_t i = 0; i < 1031; i += 7)
                a.set(i, e.form >= compare ? b[i] : a[i]);  // some are equal
            check_close(e.name, forward(v, e, a, b), apply(references.at(e.name), a, b),
                        tolerance(v.dtype), 1e-3);
        }
    });
}

TEST_CASE("pointwise ops of integers are exact, and wrap") {
    each_variant(
        [](const Variant& v) {
            Random random(2);
            const int64_t low = v.dtype == Dtype::u8 ? 1 : -9;
            for (const Entry& e : entries()) {
                if (!e.any_dtype || e.form == selection) continue;
                if (v.dtype == Dtype::u8 && (e.name == "neg" || e.name == "sub")) continue;
                Tile a = v.tile(random.integers(200, low, 9)),
                     b = v.tile(random.integers(200, low, 9));
                if (e.name == "pow") b = v.tile(random.integers(200, 0, 2));
                for (size_t i = 0; i < 200; ++i)
                    if (e.name == "remainder" && b[i] == 0) b.set(i, 4);
                check_close(e.name, forward(v, e, a, b), apply(references.at(e.name), a, b), 0);
            }
        },
        {Dtype::i32, Dtype::i64, Dtype::u8});
}

// y of one op on a few integers.
Values integers(const Variant& v, const std::string& name, const Values& a, const Values& b) {
    Tile ta = v.tile(a), tb = v.tile(b), y = v.output(a.size());
    CHECK(run(v, name, contiguous(a.size()), {&y, &ta, &tb}) == "");
    return y.values();
}

TEST_CASE("integer arithmetic wraps, and special cases have a value") {
    each_variant(
        [](const Variant& v) {
            CHECK(integers(v, "add", {2147483647}, {1}) == Values{-2147483648.0});
            CHECK(integers(v, "mul", {65536, 3}, {65536, -4}) == Values{0, -12});
            CHECK(integers(v, "remainder", {7, -7, 7, -7, 5}, {3, 3, -3, -3, 0}) ==
                  Values{1, 2, -2, -1, 0});
            CHECK(integers(v, "pow", {2, 1, -1, -1, 0, 3}, {-1, -5, -3, -2, 0, 5}) ==
                  Values{0, 1, -1, 1, 1, 243});
        },
        {Dtype::i32});
    each_variant(
        [](const Variant& v) {
            CHECK(integers(v, "remainder", {-9223372036854775808.0}, {-1}) == Values{0});
            CHECK(integers(v, "add", {4294967296}, {4294967296}) == Values{8589934592});
        },
        {Dtype::i64});
    each_variant([](const Variant& v) { CHECK(integers(v, "add", {250}, {10}) == Values{4}); },
                 {Dtype::u8});
}

// dx of the backward kernel; operands that the derivative does not need are left out.
Values backward(const Variant& v, const Entry& e, const std::string& kernel,
                const std::string& needs, Tile& dy, Tile& a, Tile& b, Tile& y) {
    const bool one = e.form == unary;
    const auto given = [&](char name, Tile& tile) {
        return needs.find(name) == std::string::npos ? nullptr : &tile;
    };
    Tile dx = v.output(a.size()), dx_all = v.output(a.size());
    std::vector<Tile*> needed = {&dx, &dy, given(one ? 'x' : 'a', a), given('b', b), given('y', y)};
    std::vector<Tile*> all = {&dx_all, &dy, &a, &b, &y};
    if (one) needed.erase(needed.begin() + 3), all.erase(all.begin() + 3);
    CHECK(run(v, kernel, contiguous(a.size()), all) == "");
    auto p = contiguous(a.size());
    CHECK(run(v, kernel, p, needed) == "");
    check_close(kernel + " without what it does not need", dx, dx_all.values(), 0);
    return dx.values();
}

TEST_CASE("pointwise derivatives equal central differences") {
    each_variant([](const Variant& v) {
        Random random(3);
        for (const Entry& e : entries()) {
            if (e.form != unary && e.form != binary) continue;
            const Function& f = references.at(e.name);
            Tile a = v.tile(random.values(203, e.a_lo, e.a_hi)),
                 b = v.tile(random.values(203, e.b_lo, e.b_hi));
            Tile dy = v.tile(random.values(203, 0.5, 2)), y = v.tile(apply(f, a, b));
            Values da(203), db(203);
            const double h = 1e-5;
            for (size_t i = 0; i < 203; ++i) {
                da[i] = dy[i] * (f(a[i] + h, b[i]) - f(a[i] - h, b[i])) / (2 * h);
                db[i] = dy[i] * (f(a[i], b[i] + h) - f(a[i], b[i] - h)) / (2 * h);
            }
            // The rounding of y matters in terms such as 1 - y^2.
            const double tol = v.dtype == Dtype::bf16 ? 0.02 : v.dtype == Dtype::f32 ? 2e-6 : 1e-8;
            const std::string name = e.name + "_backward";
            if (e.form == unary) {
                check_close(name, backward(v, e, name, e.needs_a, dy, a, b, y), da, tol);
            } else {
                check_close(name + "_a", backward(v, e, name + "_a", e.needs_a, dy, a, b, y), da,
                            tol);
                check_close(name + "_b", backward(v, e, name + "_b", e.needs_b, dy, a, b, y), db,
                            tol);
            }
        }
    });
}

TEST_CASE("relu and abs have the right slope at their kink, and maximum shares a tie") {
    each_variant([](const Variant& v) {
        Tile dy = v.tile({1, 1, 1, 1}), x = v.tile({-2, 0, 3, 1}), y = v.tile({0, 0, 3, 1}),
             dx = v.output(4);
        run(v, "relu_backward", contiguous(4), {&dx, &dy, &x, &y});
        CHECK(dx.values() == Values{0, 0, 1, 1});
        run(v, "abs_backward", contiguous(4), {&dx, &dy, &x, &y});
        CHECK(dx.values() == Values{-1, 0, 1, 1});
        Tile b = v.tile({-3, 0, 4, 1});
        run(v, "maximum_backward_a", contiguous(4), {&dx, &dy, &x, &b, nullptr});
        CHECK(dx.values() == Values{1, 0.5, 0, 0.5});
        run(v, "minimum_backward_a", contiguous(4), {&dx, &dy, &x, &b, nullptr});
        CHECK(dx.values() == Values{0, 0.5, 1, 0.5});
    });
}

}  // namespace
