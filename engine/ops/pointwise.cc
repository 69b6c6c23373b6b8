// The ops of kernels/pointwise.inc: every line there becomes an op here, and another for each of
// its derivatives.
#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

enum class Result { like_input, boolean };
enum Dtypes { FLOATS, ANY };

// Integers give way to floats, narrow to wide; arithmetic counts booleans (i64).
Dtype promote(Dtype a, Dtype b) {
    static const int order[] = {5, 6, 4, 2, 3, 1, 0};  // f32 f64 bf16 i32 i64 u8 bool
    return order[int(a)] > order[int(b)] ? a : b;
}

// An input is a tensor or, by the attribute "<name>_number", a number.
std::vector<TensorOrNumber> operands_of(const Call& c, const std::vector<std::string>& names,
                                        Dtypes allowed, Dtype* dtype) {
    std::vector<TensorOrNumber> operands;
    bool any = false;
    for (const std::string& name : names) {
        const Tensor& t = c.in(name.c_str());
        const std::string number = name + "_number";
        if (!t) {
            operands.push_back(c.given(number.c_str()) ? c.number(number.c_str()) : 0.0);
            c.need(c.given(number.c_str()), "'%s' is missing: a tensor or a number", name.c_str());
            continue;
        }
        operands.push_back(t);
        *dtype = any ? promote(*dtype, t.dtype()) : t.dtype();
        any = true;
    }
    c.need(any, "at least one operand must be a tensor");
    for (const TensorOrNumber& o : operands) {
        if (o.tensor || is_float(*dtype)) continue;
        const bool whole = std::fabs(o.number) < 0x1p53 && o.number == double(int64_t(o.number));
        if (!whole)
            *dtype = Dtype::f32;
        else if (*dtype == Dtype::boolean && o.number != 0 && o.number != 1)
            *dtype = Dtype::i64;
    }
    if (allowed == FLOATS && !is_float(*dtype)) *dtype = Dtype::f32;
    return operands;
}

void run_pointwise(Call& c, Dtypes allowed, Result result, const std::vector<std::string>& names) {
    Dtype dtype = Dtype::f32;
    std::vector<TensorOrNumber> operands = operands_of(c, names, allowed, &dtype);
    const bool keeps_bool = c.op.name == "maximum" || c.op.name == "minimum";
    if (dtype == Dtype::boolean && result == Result::like_input && !keeps_bool) dtype = Dtype::i64;
    for (TensorOrNumber& o : operands)
        if (o.tensor) o.tensor = cast(o.tensor, dtype);
    const Dtype out = result == Result::boolean ? Dtype::boolean : dtype;
    c.result(pointwise(c.op.name.c_str(), dtype, out, operands));
}

// Derivatives take only the operands they need: their kernels' other operands stay absent.
void run_backward(Call& c, const std::string& all) {
    c.need_float("dy");
    const Tensor& dy = c.in("dy");
    std::vector<TensorOrNumber> operands{dy};
    for (char name : all) {
        const std::string text(1, name);
        const auto declared = [&](const std::string& n) {
            return std::any_of(c.op.inputs.begin(), c.op.inputs.end(),
                               [&](const std::string& i) { return i.substr(0, i.find('?')) == n; });
        };
        if (!declared(text)) {
            operands.push_back(0.0);
        } else if (const Tensor& t = c.in(text.c_str())) {
            operands.push_back(cast(t, dy.dtype()));
        } else {
            operands.push_back(c.number((text + "_number").c_str()));
        }
    }
    c.result(pointwise(c.op.name.c_str(), dy.dtype(), dy.dtype(), operands));
}

// "name(x) -> y: text | {1}, 2 --> {3}" as a signature, the text with what is said of `operands`,
// and an example, in which a list in braces becomes a tensor.
std::string doc_of(const std::string& name, const std::string& text, const char* operands) {
    const size_t colon = text.find(": "), bar = text.find(" | "), arrow = text.find(" --> ");
    if (bar == text.npos || arrow == text.npos) return text;  // which tests/lua/docs.lua refuses
    std::string example;
    for (const char c : text.substr(bar + 3, arrow - bar - 3)) {
        if (c == '{') example += "nn.tensor";
        example += c;
    }
    return text.substr(0, colon) + "\n" + text.substr(colon + 2, bar - colon - 2) + ". " +
           operands + "\n    nn." + name + "(" + example + ")  " + text.substr(arrow + 1);
}

std::string sample(const char* name, const char* shape, double lo, double hi) {
    return format("%s={%s,lo=%g,hi=%g}", name, shape, lo, hi);
}

Op base(const char* name, const char* doc, const char* operands) {
    Op op;
    op.name = name;
    op.doc = doc_of(name, doc, operands);
    op.category = "pointwise";
    return op;
}

Attribute number_attribute(const std::string& input) {
    return {input + "_number", "number", "nil", "the number, where " + input + " is one"};
}

const char* const broadcasting =
    "Operands broadcast; one may be a number. Error: shapes that do not broadcast.";
const char* const flat = "is flat wherever it has a derivative";

Op unary(const char* name, Dtypes dtypes, const char* doc, double lo, double hi) {
    Op op = base(
        name, doc,
        dtypes == ANY ? "y has x's shape." : "y has x's shape; integers and booleans become f32.");
    op.inputs = {"x"};
    op.samples = {"{" + sample("x", "3,5", lo, hi) + "}"};
    return op;
}

Op binary(const char* name, const char* doc, double a_lo, double a_hi, double b_lo, double b_hi) {
    Op op = base(name, doc, broadcasting);
    op.inputs = {"a?", "b?"};
    op.attributes = {number_attribute("a"), number_attribute("b")};
    const double number = b_lo > 0 ? b_lo : 1.5;
    op.samples = {
        "{" + sample("a", "3,5", a_lo, a_hi) + "," + sample("b", "3,5", b_lo, b_hi) + "}",
        "{" + sample("a", "2,3,5", a_lo, a_hi) + "," + sample("b", "3,1", b_lo, b_hi) + "}",
        "{" + sample("a", "5", a_lo, a_hi) + "," + sample("b", "3,1", b_lo, b_hi) + "}",
        "{" + sample("a", "4,3", a_lo, a_hi) + format(", b=%g}", number)};
    return op;
}

// The derivative `name`_backward`suffix` with inputs dy and those of `needs`. Its example lies
// where every op is smooth: at 0.5, or a = 0.5 and b = 2.
Op backward(const char* name, const char* suffix, const char* needs, const char* slope,
            bool numbers) {
    Op op;
    op.name = std::string(name) + "_backward" + suffix;
    op.doc = op.name + "(dy";
    op.inputs = {"dy"};
    const std::string first = "nn.tensor{0.5}";
    std::string example = "    nn." + op.name + "(nn.tensor{1}";
    for (const char* c = needs; *c; ++c) {
        op.doc += std::string(", ") + *c;
        op.inputs.push_back(std::string(1, *c) + (numbers ? "?" : ""));
        if (numbers) op.attributes.push_back(number_attribute(std::string(1, *c)));
        const std::string result =
            std::string("nn.") + name + "(" + first + (numbers ? ", 2)" : ")");
        example += ", " + (*c == 'y' ? result : *c == 'b' ? "nn.tensor{2}" : first);
    }
    op.doc += std::string(") -> dx\ndy times the slope of ") + name +
              (*suffix ? std::string(" in ") + (suffix + 1) : "") + ", " + slope +
              ". Operands broadcast.\n" + example + ")";
    op.category = "gradients";
    op.no_gradient = "is itself a gradient";
    return op;
}

#define RUN(...) [](Call& c) { __VA_ARGS__; }
Op with_run(Op op, void (*run)(Call&)) {
    op.run = run;
    return op;
}
Op flat_op(Op op, const char* why) {
    op.no_gradient = why;
    return op;
}

#define UNARY(name, dtypes, lo, hi, f, slope, needs, doc)                   \
    const OpRegistrar name##_op =                                           \
        with_run(unary(#name, dtypes, doc, lo, hi),                         \
                 RUN(run_pointwise(c, dtypes, Result::like_input, {"x"}))); \
    const OpRegistrar name##_backward_op =                                  \
        with_run(backward(#name, "", needs, #slope, false), RUN(run_backward(c, "xy")));
#define FLAT(name, dtypes, lo, hi, f, doc)                         \
    const OpRegistrar name##_op =                                  \
        with_run(flat_op(unary(#name, dtypes, doc, lo, hi), flat), \
                 RUN(run_pointwise(c, dtypes, Result::like_input, {"x"})));
#define PREDICATE(name, dtypes, lo, hi, f, doc)                                \
    const OpRegistrar name##_op =                                              \
        with_run(flat_op(unary(#name, dtypes, doc, lo, hi), "gives booleans"), \
                 RUN(run_pointwise(c, dtypes, Result::boolean, {"x"})));
#define BINARY(name, dtypes, a_lo, a_hi, b_lo, b_hi, f, slope_a, needs_a, slope_b, needs_b, doc) \
    const OpRegistrar name##_op =                                                                \
        with_run(binary(#name, doc, a_lo, a_hi, b_lo, b_hi),                                     \
                 RUN(run_pointwise(c, dtypes, Result::like_input, {"a", "b"})));                 \
    const OpRegistrar name##_backward_a_op =                                                     \
        with_run(backward(#name, "_a", needs_a, #slope_a, true), RUN(run_backward(c, "aby")));   \
    const OpRegistrar name##_backward_b_op =                                                     \
        with_run(backward(#name, "_b", needs_b, #slope_b, true), RUN(run_backward(c, "aby")));
#define COMPARE(name, dtypes, f, doc)                                         \
    const OpRegistrar name##_op =                                             \
        with_run(flat_op(binary(#name, doc, -3, 3, -3, 3), "gives booleans"), \
                 RUN(run_pointwise(c, dtypes, Result::boolean, {"a", "b"})));
#define SELECT(name, dtypes, f, doc) \
    const OpRegistrar name##_op = with_run(select(#name, doc), RUN(run_select(c)));

Op select(const char* name, const char* doc) {
    Op op = base(name, doc, broadcasting);
    op.inputs = {"cond", "a?", "b?"};
    op.attributes = {number_attribute("a"), number_attribute("b")};
    op.samples = {"{cond={3,5,bool=true}, a={3,5}, b={3,5}}",
                  "{cond={3,1,bool=true}, a={3,5}, b=-1}", "{cond={5,bool=true}, a=0, b={3,5}}"};
    return op;
}

void run_select(Call& c) {
    Dtype dtype = Dtype::f32;
    std::vector<TensorOrNumber> operands = operands_of(c, {"a", "b"}, ANY, &dtype);
    for (TensorOrNumber& o : operands)
        if (o.tensor) o.tensor = cast(o.tensor, dtype);
    operands.insert(operands.begin(), cast(c.in("cond"), Dtype::boolean));
    c.result(pointwise("where", dtype, dtype, operands));
}

// clang-format off
#include "kernels/pointwise.inc"
// clang-format on

}  // namespace
}  // namespace nn
