// The ops of kernels/pointwise.inc: every line there makes an op, and one for each derivative.
#include <cmath>

#include "engine/base/error.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

// The dtypes column: floats only; any, with booleans computed as i64; any, with booleans kept.
enum Dtypes { FLOATS, ANY, SAME };

// Integers become floats, narrow types wide ones; arithmetic converts booleans to i64.
Dtype promote(Dtype a, Dtype b) {
    static const int order[] = {5, 6, 4, 2, 3, 1, 0};  // f32 f64 bf16 i32 i64 u8 bool
    return order[int(a)] > order[int(b)] ? a : b;
}

TensorOrNumber operand(const Call& c, size_t input) {
    if (const Tensor& t = c.all()[input]) return t;
    const char* name = c.op.inputs[input].name.c_str();
    return {c.number_or_scalar(name), c.scalar(name)};
}

// The operands from the input `first` on, cast to the dtype in which `allowed` computes them. A
// scalar counts as a fraction, because its value may become one.
std::vector<TensorOrNumber> operands_of(const Call& c, size_t first, Dtypes allowed, Dtype* dtype) {
    std::vector<TensorOrNumber> operands;
    bool any = false;
    for (size_t i = first; i < c.op.inputs.size(); ++i) {
        operands.push_back(operand(c, i));
        const Tensor& t = operands.back().tensor;
        if (t) *dtype = any ? promote(*dtype, t.dtype()) : t.dtype();
        any |= bool(t);
    }
    c.need(any, "at least one operand must be a tensor");
    for (const TensorOrNumber& o : operands) {
        if (o.tensor || is_float(*dtype)) continue;
        const bool whole =
            o.scalar < 0 && std::fabs(o.number) < 0x1p53 && o.number == double(int64_t(o.number));
        if (!whole)
            *dtype = Dtype::f32;
        else if (!representable(o.number, *dtype))
            *dtype = Dtype::i64;
    }
    if (allowed == FLOATS && !is_float(*dtype)) *dtype = Dtype::f32;
    if (allowed == ANY && *dtype == Dtype::boolean) *dtype = Dtype::i64;
    for (TensorOrNumber& o : operands)
        if (o.tensor) o.tensor = cast(o.tensor, *dtype);
    return operands;
}

template <Dtypes allowed, bool predicate = false> void run_arithmetic(Call& c) {
    Dtype dtype = Dtype::f32;
    const std::vector<TensorOrNumber> operands =
        operands_of(c, 0, predicate && allowed == ANY ? SAME : allowed, &dtype);
    c.result(pointwise(c.op.name.c_str(), dtype, predicate ? Dtype::boolean : dtype, operands));
}

template <Dtypes allowed> void run_select(Call& c) {
    Dtype dtype = Dtype::f32;
    std::vector<TensorOrNumber> operands = operands_of(c, 1, allowed, &dtype);
    operands.insert(operands.begin(), cast(c.in("cond"), Dtype::boolean));
    c.result(pointwise(c.op.name.c_str(), dtype, dtype, operands));
}

// The kernel's operands are dy, then the inputs and the output of the forward op. Those that the
// derivative does not read are not inputs of this op; the operand is then the number 0.
void run_backward(Call& c) {
    c.need_float("dy");
    const Dtype dtype = c.in("dy").dtype();
    std::vector<TensorOrNumber> operands{c.in("dy")};
    size_t next = 1;
    const auto add = [&](const std::string& name) {
        const bool needed = next < c.op.inputs.size() && c.op.inputs[next].name == name;
        operands.push_back(needed ? operand(c, next++) : 0.0);
        if (Tensor& t = operands.back().tensor) t = cast(t, dtype);
    };
    const Op& forward = *find_op(c.op.gradient_of);
    for (const Input& input : forward.inputs) add(input.name);
    for (const Output& output : forward.outputs) add(output.name);
    c.result(pointwise(c.op.name.c_str(), dtype, dtype, operands));
}

// An op from its line. doc is "name(x) -> y: text | {1}, 2 --> {3}": the text, to which `note` is
// added, and an example, in which a list in braces becomes a tensor.
Op op_of(const std::string& name, const char* inputs, void (*run)(Call&), const std::string& doc,
         const std::string& note) {
    Op op{.doc = name + inputs + " -> y", .run = run, .category = "pointwise"};
    const size_t colon = doc.find(": "), bar = doc.find(" | "), arrow = doc.find(" --> ");
    if (bar == doc.npos || arrow == doc.npos) return op;  // project/docs.lua refuses it
    std::string example;
    for (const char c : doc.substr(bar + 3, arrow - bar - 3)) {
        if (c == '{') example += "nn.tensor";
        example += c;
    }
    op.doc += std::string("\n") + doc.substr(colon + 2, bar - colon - 2) + ". " + note +
              "\n    nn." + name + "(" + example + ")  " + doc.substr(arrow + 1);
    return op;
}

Op unary(const char* name, void (*run)(Call&), const char* doc, const char* note, double lo,
         double hi, const char* no_gradient = "") {
    Op op = op_of(name, "(x)", run, doc, note);
    op.samples = {format("{x={3,5,lo=%g,hi=%g}}", lo, hi)};
    op.no_gradient = no_gradient;
    return op;
}

Op binary(const char* name, void (*run)(Call&), const char* doc, const std::string& note,
          double a_lo, double a_hi, double b_lo, double b_hi, const char* no_gradient = "") {
    Op op = op_of(name, "(a#, b#)", run, doc, note);
    for (const auto& [a, b] : {std::pair{"3,5", "3,5"}, {"2,3,5", "3,1"}, {"5", "3,1"}})
        op.samples.push_back(
            format("{a={%s,lo=%g,hi=%g},b={%s,lo=%g,hi=%g}}", a, a_lo, a_hi, b, b_lo, b_hi));
    op.samples.push_back(format("{a={4,3,lo=%g,hi=%g}, b=%g}", a_lo, a_hi, b_lo > 0 ? b_lo : 1.5));
    op.no_gradient = no_gradient;
    return op;
}

Op select(const char* name, void (*run)(Call&), const char* doc, const std::string& note) {
    Op op = op_of(name, "(cond, a#, b#)", run, doc, note);
    op.samples = {"{cond={3,5,bool=true}, a={3,5}, b={3,5}}",
                  "{cond={3,1,bool=true}, a={3,5}, b=-1}", "{cond={5,bool=true}, a=0, b={3,5}}"};
    return op;
}

// The derivative of `name` in `input`, with inputs dy and those of `needs`. Its example is at 0.5,
// or a = 0.5 and b = 2, where every op is smooth.
Op backward(const std::string& name, const char* input, const char* needs, const char* slope) {
    const bool is_binary = find_op(name)->inputs.size() > 1;
    const std::string op = name + "_backward" + (is_binary ? std::string("_") + input : "");
    std::string inputs = "dy", example = "nn.tensor{1}";
    for (const char* c = needs; *c; ++c) {
        inputs += std::string(", ") + *c + (is_binary && *c != 'y' ? "#" : "");
        const std::string y =
            "nn." + name + (is_binary ? "(nn.tensor{0.5}, 2)" : "(nn.tensor{0.5})");
        example += ", " + (*c == 'y' ? y : *c == 'b' ? "nn.tensor{2}" : "nn.tensor{0.5}");
    }
    return Op{.doc = op + "(" + inputs + ") -> dx\ndy times the slope of " + name +
                     (is_binary ? std::string(" in ") + input : "") + ", " + slope +
                     ". Operands broadcast.\n    nn." + op + "(" + example + ")",
              .gradient_of = name,
              .gradient_in = input,
              .run = run_backward};
}

const char* const shapes[] = {"y has x's shape; integers and booleans become f32.",
                              "y has x's shape.", "y has x's shape."};  // by Dtypes
const std::string broadcasting =
    "Operands broadcast; one may be a number. Error: shapes that do not broadcast.";
const char* const flat = "is piecewise constant";
const char* const booleans = "returns booleans";

#define UNARY(name, dtypes, lo, hi, f, slope, needs, doc)                  \
    const OpRegistrar name##_op =                                          \
        unary(#name, run_arithmetic<dtypes>, doc, shapes[dtypes], lo, hi); \
    const OpRegistrar name##_backward_op = backward(#name, "x", needs, #slope);
#define FLAT(name, dtypes, lo, hi, f, doc) \
    const OpRegistrar name##_op =          \
        unary(#name, run_arithmetic<dtypes>, doc, shapes[dtypes], lo, hi, flat);
#define PREDICATE(name, dtypes, lo, hi, f, doc)                                   \
    const OpRegistrar name##_op = unary(#name, run_arithmetic<dtypes, true>, doc, \
                                        "y is bool and has x's shape.", lo, hi, booleans);
#define BINARY(name, dtypes, a_lo, a_hi, b_lo, b_hi, f, slope_a, needs_a, slope_b, needs_b, doc) \
    const OpRegistrar name##_op =                                                                \
        binary(#name, run_arithmetic<dtypes>, doc, broadcasting, a_lo, a_hi, b_lo, b_hi);        \
    const OpRegistrar name##_backward_a_op = backward(#name, "a", needs_a, #slope_a);            \
    const OpRegistrar name##_backward_b_op = backward(#name, "b", needs_b, #slope_b);
#define COMPARE(name, dtypes, f, doc)                                              \
    const OpRegistrar name##_op = binary(#name, run_arithmetic<dtypes, true>, doc, \
                                         "y is bool. " + broadcasting, -3, 3, -3, 3, booleans);
#define SELECT(name, dtypes, f, doc) \
    const OpRegistrar name##_op = select(#name, run_select<dtypes>, doc, broadcasting);

// clang-format off
#include "kernels/pointwise.inc"
// clang-format on

}  // namespace
}  // namespace nn
