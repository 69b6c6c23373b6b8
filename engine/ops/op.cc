#include "engine/ops/op.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/rules/copy.h"
#include "engine/rules/view.h"

namespace nn {
namespace {

std::map<std::string, Op>& registry() {
    static std::map<std::string, Op> ops;
    return ops;
}

// Removes `mark` from the end of a declared name; false if it has none.
bool take_mark(std::string& name, char mark) {
    const bool found = name.back() == mark;
    if (found) name.pop_back();
    return found;
}

// The items of "a, b, c", in which a comma may end a line.
template <class T> std::vector<T> list_of(const std::string& text) {
    std::vector<T> out;
    for (size_t from = 0, end; from < text.size(); from = end + 2) {
        end = std::min(text.find(',', from), text.size());
        out.emplace_back(text.substr(from, end - from));
    }
    return out;
}

int64_t as_integer(const char* op, const char* name, double value) {
    if (!(std::fabs(value) < 0x1p63) || value != double(int64_t(value)))
        fail("%s: %s is %g; a whole number is needed", op, name, value);
    return int64_t(value);
}

int checked_axis(const char* op, const char* name, int64_t value, size_t rank) {
    const int64_t n = int64_t(rank);
    if (rank == 0) fail("%s: needs a tensor of at least one axis", op);
    if (value == 0 || value > n || value < -n)
        fail("%s: %s is %lld; a tensor of %zu axes has axes 1 to %zu (or -1 to -%zu from the end)",
             op, name, (long long)value, rank, rank, rank);
    return int(value > 0 ? value - 1 : value + n);
}

void append(std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ", ") + item;
}

// The call in the reference, "linear(x, weight, bias?, {gelu=false}) -> y, pre?". Once an input or
// attribute is optional, attributes are in braces, with their defaults.
std::string call_of(const Op& op) {
    std::string arguments, options, results;
    bool all_needed = true;
    for (const Input& input : op.inputs) {
        append(arguments, input.name + (input.optional ? "?" : ""));
        all_needed &= !input.optional;
    }
    for (const Attribute& a : op.attributes) {
        const std::string& text = a.default_value;
        all_needed &= text.empty();
        if (all_needed)
            append(arguments, a.name);
        else
            append(options, a.name + (text.empty()    ? ""
                                      : text == "nil" ? "?"
                                      : a.is_text()   ? "=\"" + text + "\""
                                                      : "=" + text));
    }
    if (!options.empty()) append(arguments, "{" + options + "}");
    for (const Output& output : op.outputs)
        append(results, output.name + (output.optional ? "?" : ""));
    return op.name + "(" + arguments + ") -> " + results;
}

void set_default(std::string& text, const std::string& value) {
    if (text.empty()) text = value;
}

// Sets the fields that follow from the doc and the other fields.
void fill_in(Op& op) {
    const size_t open = op.doc.find('('), close = op.doc.find(") -> ", open);
    if (open == std::string::npos || close == std::string::npos)
        fail("the doc of an op is '%s'; it must begin with NAME(inputs) -> outputs",
             op.doc.substr(0, 60).c_str());
    const size_t end = std::min(op.doc.find('\n', close), op.doc.size());
    op.name = op.doc.substr(0, open);
    op.inputs = list_of<Input>(op.doc.substr(open + 1, close - open - 1));
    op.outputs = list_of<Output>(op.doc.substr(close + 5, end - close - 5));
    op.doc = call_of(op) + op.doc.substr(end);
    if (!op.gradient_of.empty()) op.category = "gradients", op.no_gradient = "is itself a gradient";
    if (op.inputs.empty()) set_default(op.no_gradient, "takes no tensor");
    if (!op.in_place()) return;
    set_default(op.no_gradient, "changes " + op.inputs[0].name + " in place");
    set_default(op.category, "in place");
}

// Checks that a call returned the declared outputs.
void check_results(const Op& op, const std::vector<Tensor>& results) {
    bool good = results.size() <= op.outputs.size();
    for (size_t i = 0; i < op.outputs.size() && good; ++i)
        good = op.outputs[i].optional || (i < results.size() && results[i]);
    if (!good) fail("%s: the results differ from the declared outputs", op.name.c_str());
}

}  // namespace

Input::Input(std::string declared) : name(std::move(declared)) {
    const size_t plus = name.find('+');
    if (plus != name.npos) {
        gradient_in = name.substr(plus + 1);
        name.resize(plus);
        optional = true;
    }
    in_place = take_mark(name, '!');
    list = take_mark(name, '*');
    number = take_mark(name, '#');
    optional |= take_mark(name, '?');
}

Output::Output(std::string declared) : name(std::move(declared)) {
    differentiable = !take_mark(name, '~');
    optional = take_mark(name, '?');
}

bool Op::in_place() const { return std::ranges::any_of(inputs, &Input::in_place); }

size_t Op::values() const {
    const bool numbers = std::ranges::any_of(inputs, &Input::number);
    return attributes.size() + (numbers ? inputs.size() : 0);
}

// The compiler passes absolute paths; Op::source is relative to the source tree.
OpRegistrar::OpRegistrar(Op op, const char* file, int line) {
    fill_in(op);
    const std::string path = file;
    size_t begin = path.rfind("engine/ops/");
    if (begin == std::string::npos) begin = path.rfind("kernels/");
    op.source = path.substr(begin == std::string::npos ? path.rfind('/') + 1 : begin) + ":" +
                std::to_string(line);
    if (!op.no_gradient.empty())
        for (Output& output : op.outputs) output.differentiable = false;
    registry()[op.name] = op;
}

const std::map<std::string, Op>& all_ops() { return registry(); }

const Op* find_op(const std::string& name) {
    const auto it = registry().find(name);
    return it == registry().end() ? nullptr : &it->second;
}

std::vector<Tensor> apply(const Op& op, std::vector<Tensor> inputs, std::vector<Value> values) {
    const CurrentOp in_progress(op.name.c_str(), op.in_place());
    const bool no_axes = op.any_rank && !inputs.empty() && inputs[0] && inputs[0].rank() == 0;
    for (Tensor& t : inputs)
        if (no_axes && t && t.rank() == 0) t = reshape(t, {1});
    Call call(op, std::move(inputs), std::move(values));
    OpEmission tasks;
    op.run(call);
    check_results(op, call.results);
    for (Tensor& t : call.results)
        if (no_axes && t) t = reshape(t, {});
    for (size_t i = 0; i < op.inputs.size(); ++i)
        if (op.inputs[i].changes() && call.all()[i]) call.all()[i].changed();
    tasks.commit();
    return std::move(call.results);
}

std::vector<const Kernel*> kernels_of(const Op& op) {
    std::set<std::string> names(op.kernels.begin(), op.kernels.end());
    if (names.empty() && find_kernel(op.name)) names.insert(op.name);
    names.insert({"copy", "cast", "fill"});
    std::vector<const Kernel*> out;
    for (const std::string& name : names) {
        out.push_back(find_kernel(name));
        if (!out.back()) fail("%s: declares unknown kernel '%s'", op.name.c_str(), name.c_str());
    }
    return out;
}

std::string shown(double number) { return format("%g", number); }

Call::Call(const Op& o, std::vector<Tensor> inputs, std::vector<Value> values)
    : op(o), inputs_(std::move(inputs)), values_(std::move(values)) {
    values_.resize(op.values());
    check_inputs();
    fill_defaults();
}

void Call::check_inputs() {
    const size_t declared = op.inputs.size(), attributes = op.attributes.size();
    const bool list = declared == 1 && op.inputs[0].list;
    need(list || inputs_.size() <= declared, "takes {} tensors, {} were given", declared,
         inputs_.size());
    need(!list || !inputs_.empty(), "needs at least one tensor");
    if (!list) inputs_.resize(declared);
    for (size_t i = 0; i < inputs_.size(); ++i) {
        const Input& input = op.inputs[list ? 0 : i];
        const Tensor& t = inputs_[i];
        const bool number =
            values_.size() > attributes && values_[attributes + i].kind != Value::none;
        need(!number || (input.number && !t), "'{}' cannot be a number", input.name);
        if (!t && !number && !input.optional)
            refuse("tensor {} is missing",
                   {list ? shown(i + 1) : format("'%s'", input.name.c_str())});
        need(!t || !t.stale(),
             "input {} is a view of a tensor that was changed in place since; take the view "
             "again, or clone() it",
             i + 1);
        need(!t || !input.changes() || !t.is_view(),
             "{} is a view; an op that changes it in place needs the tensor itself (or a clone())",
             input.name);
    }
}

void Call::fill_defaults() {
    for (size_t i = 0; i < op.attributes.size(); ++i) {
        const Attribute& a = op.attributes[i];
        const std::string& text = a.default_value;
        Value& value = values_[i];
        if (value.kind != Value::none || text == "nil") continue;
        need(!text.empty(), "'{}' must be given ({})", a.name, a.doc);
        value.kind = a.is_text() ? Value::text : Value::number;
        value.text_value = text;
        value.number_value = text == "true" ? 1 : std::strtod(text.c_str(), nullptr);
    }
}

void Call::refuse(const char* text, const std::vector<std::string>& arguments) const {
    std::string message = op.name + ": ";
    size_t next = 0;
    for (const char* c = text; *c; ++c) {
        const bool is_argument = c[0] == '{' && c[1] == '}';
        message += is_argument ? arguments.at(next++) : std::string(1, *c);
        c += is_argument;
    }
    throw Error(message);
}

const Tensor& Call::in(const char* name) const {
    for (size_t i = 0; i < op.inputs.size(); ++i)
        if (op.inputs[i].name == name) return inputs_[i];
    fail("%s: declares no input '%s'", op.name.c_str(), name);
}

const Value& Call::value(const std::string& name) const {
    for (size_t i = 0; i < op.attributes.size(); ++i)
        if (op.attributes[i].name == name) return values_[i];
    for (size_t i = 0; i < op.inputs.size(); ++i)
        if (op.inputs[i].number && op.inputs[i].name == name)
            return values_[op.attributes.size() + i];
    fail("%s: declares no attribute '%s'", op.name.c_str(), name.c_str());
}

double Call::number_or_scalar(const char* name) const {
    const Value& v = value(name);
    need(v.kind == Value::number || v.kind == Value::scalar, "'{}' must be a number", name);
    return v.kind == Value::scalar ? scalar_value(v.scalar_id) : v.number_value;
}

// A recorded task keeps this number, so an nn.scalar, which may change later, is refused.
double Call::number(const std::string& name) const {
    need(value(name).kind != Value::scalar || !recording_number(),
         "'{}' cannot be an nn.scalar in a compiled function; give a number, with which the "
         "function is recorded again when it changes",
         name);
    return number_or_scalar(name.c_str());
}

int64_t Call::integer(const char* attribute) const {
    return as_integer(op.name.c_str(), attribute, number(attribute));
}

std::string Call::text(const char* attribute) const {
    const Value& v = value(attribute);
    need(v.kind == Value::text, "'{}' must be a string", attribute);
    return v.text_value;
}

Dims Call::ints(const char* attribute) const {
    const Value& v = value(attribute);
    if (v.kind == Value::number) return {as_integer(op.name.c_str(), attribute, v.number_value)};
    need(v.kind == Value::list, "'{}' must be a list of whole numbers", attribute);
    return v.list_value;
}

Dtype Call::dtype(const char* attribute) const {
    const std::string name = text(attribute);
    int number = 0;
    while (number < dtype_count && name != dtype_name(Dtype(number))) ++number;
    need(number < dtype_count, "unknown dtype '{}'; known: f32, f64, bf16, i32, i64, u8, bool",
         name);
    return Dtype(number);
}

int Call::axis(const char* attribute, size_t rank) const {
    return checked_axis(op.name.c_str(), attribute, integer(attribute), rank);
}

std::vector<int> Call::axes(const char* attribute, size_t rank) const {
    std::vector<int> out;
    if (!given(attribute)) {
        for (size_t i = 0; i < rank; ++i) out.push_back(int(i));
        return out;
    }
    const Dims given = ints(attribute);
    need(!given.empty() || rank == 0, "'{}' is an empty list; leave it out for all axes",
         attribute);
    for (int64_t value : given)
        out.push_back(checked_axis(op.name.c_str(), attribute, value, rank));
    std::ranges::sort(out);
    need(std::ranges::adjacent_find(out) == out.end(), "'{}' names an axis twice", attribute);
    return out;
}

std::vector<Patch> Call::patch(const char* attribute, size_t offset) const {
    if (scalar(attribute) < 0) return {};
    return {{Patch::scalar, int32_t(offset), scalar(attribute)}};
}

void Call::fill(const Tensor& x, const char* name) const {
    const double number = number_or_scalar(name);
    need(representable(number, x.dtype()), "dtype {} cannot hold {}", x.dtype(), number);
    need(scalar(name) < 0 || is_float(x.dtype()), "an nn.scalar cannot fill a tensor of {}",
         x.dtype());
    nn::fill(x, number, scalar(name));
}

void Call::need_float(const char* input) const {
    const Tensor& t = in(input);
    if (t && !is_float(t.dtype()))
        refuse("{} is {}; a float dtype (f32, f64, bf16) is needed: {}:to('f32')",
               {input, shown(t.dtype()), input});
}

void Call::need_dtype(const char* input, Dtype dtype) const {
    const Tensor& t = in(input);
    if (t && t.dtype() != dtype)
        refuse("{} is {} where {} is needed: {}:to('{}')",
               {input, shown(t.dtype()), shown(dtype), input, shown(dtype)});
}

void Call::need_ids(const char* input) const {
    const Tensor& t = in(input);
    if (t && t.dtype() != Dtype::i32 && t.dtype() != Dtype::i64)
        refuse("{} is {}; i32 or i64 is needed", {input, shown(t.dtype())});
}

void Call::need_shape(const char* input, const Dims& shape) const {
    const Tensor& t = in(input);
    need(!t || t.shape() == shape, "{} is {} where {} is needed", input, t, shape);
}

void Call::need_same_shape(const char* input, const char* other) const {
    const Tensor &t = in(input), &like = in(other);
    need(!t || t.shape() == like.shape(), "{} is {}, {} is {}; they must be equal", input, t, other,
         like);
}

void Call::need_tensor(const char* input, const Dims& shape, Dtype dtype) const {
    need_shape(input, shape);
    need_dtype(input, dtype);
}

}  // namespace nn
