#include "engine/ops/op.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <set>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/graph/sink.h"

namespace nn {
namespace {

std::map<std::string, Op>& registry() {
    static std::map<std::string, Op> ops;
    return ops;
}

std::string input_name(const std::string& declared) {
    const char last = declared.back();
    return last == '?' || last == '*' ? declared.substr(0, declared.size() - 1) : declared;
}

Value default_value(const Attribute& attribute) {
    const std::string& text = attribute.fallback;
    Value value;
    if (text.empty() || text == "nil") return value;
    value.kind =
        attribute.kind == "text" || attribute.kind == "dtype" ? Value::text : Value::number;
    value.text_value = text;
    value.number_value = text == "true" ? 1 : std::strtod(text.c_str(), nullptr);
    return value;
}

int64_t as_integer(const char* op, const char* name, double value) {
    if (!(std::fabs(value) < 0x1p63) || value != double(int64_t(value)))
        fail("%s: %s is %g; a whole number is needed", op, name, value);
    return int64_t(value);
}

int checked_axis(const char* op, const char* name, int64_t value, size_t rank) {
    const int64_t n = int64_t(rank);
    if (value == 0 || value > n || value < -n)
        fail("%s: %s is %lld; a tensor of %zu axes has axes 1 to %zu (or -1 to -%zu from the end)",
             op, name, (long long)value, rank, rank, rank);
    return int(value > 0 ? value - 1 : value + n);
}

}  // namespace

// The compiler gives whole paths; what is told begins at the folder of the sources.
OpRegistrar::OpRegistrar(Op op, const char* file, int line) {
    const std::string name = op.name, path = file;
    size_t begin = path.rfind("engine/ops/");
    if (begin == std::string::npos) begin = path.rfind("kernels/");
    op.source = path.substr(begin == std::string::npos ? path.rfind('/') + 1 : begin) + ":" +
                std::to_string(line);
    registry()[name] = std::move(op);
}

const std::map<std::string, Op>& all_ops() { return registry(); }

const Op* find_op(const std::string& name) {
    const auto it = registry().find(name);
    return it == registry().end() ? nullptr : &it->second;
}

bool parse_dtype(const std::string& name, Dtype* out) {
    for (int i = 0; i < dtype_count; ++i)
        if (name == dtype_name(Dtype(i))) {
            *out = Dtype(i);
            return true;
        }
    return false;
}

std::vector<Tensor> apply(const Op& op, std::vector<Tensor> inputs, std::vector<Value> values) {
    const CurrentOp in_progress(op.name.c_str());
    Call call(op, std::move(inputs), std::move(values));
    OpEmission tasks;
    op.run(call);
    tasks.commit();
    return std::move(call.results);
}

std::vector<const Kernel*> kernels_of(const Op& op) {
    std::set<std::string> names(op.kernels.begin(), op.kernels.end());
    names.insert({"copy", "cast", "fill"});
    const std::string own = op.name.back() == '_' ? op.name.substr(0, op.name.size() - 1) : op.name;
    if (find_kernel(own)) names.insert(own);
    std::vector<const Kernel*> out;
    for (const std::string& name : names) {
        const Kernel* kernel = find_kernel(name);
        if (!kernel)
            fail("%s: declares a kernel '%s', which there is not", op.name.c_str(), name.c_str());
        out.push_back(kernel);
    }
    return out;
}

Call::Call(const Op& o, std::vector<Tensor> inputs, std::vector<Value> values)
    : op(o), inputs_(std::move(inputs)), values_(std::move(values)) {
    const bool list = op.inputs.size() == 1 && op.inputs[0].back() == '*';
    if (list) {
        need(!inputs_.empty(), "needs at least one tensor");
        for (size_t i = 0; i < inputs_.size(); ++i)
            need(bool(inputs_[i]), "tensor %zu is missing", i + 1);
    } else {
        need(inputs_.size() <= op.inputs.size(), "takes %zu tensors, %zu were given",
             op.inputs.size(), inputs_.size());
        inputs_.resize(op.inputs.size());
        for (size_t i = 0; i < op.inputs.size(); ++i)
            need(inputs_[i] || op.inputs[i].back() == '?', "tensor '%s' is missing",
                 op.inputs[i].c_str());
    }
    for (size_t i = 0; i < inputs_.size(); ++i)
        need(!inputs_[i] || !inputs_[i].stale(),
             "input %zu is a view of a tensor that was changed in place since; take the view "
             "again, or clone() it",
             i + 1);
    values_.resize(op.attributes.size());
    for (size_t i = 0; i < op.attributes.size(); ++i)
        if (values_[i].kind == Value::none) {
            values_[i] = default_value(op.attributes[i]);
            need(values_[i].kind != Value::none || op.attributes[i].fallback == "nil",
                 "'%s' must be given (%s)", op.attributes[i].name.c_str(),
                 op.attributes[i].doc.c_str());
        }
}

void Call::need(bool condition, const char* text, ...) const {
    if (condition) return;
    char message[512];
    va_list args;
    va_start(args, text);
    std::vsnprintf(message, sizeof message, text, args);
    va_end(args);
    fail("%s: %s", op.name.c_str(), message);
}

const Tensor& Call::in(const char* name) const {
    for (size_t i = 0; i < op.inputs.size(); ++i)
        if (input_name(op.inputs[i]) == name) return inputs_[i];
    fail("%s: declares no input '%s'", op.name.c_str(), name);
}

size_t Call::position(const char* attribute) const {
    for (size_t i = 0; i < op.attributes.size(); ++i)
        if (op.attributes[i].name == attribute) return i;
    fail("%s: declares no attribute '%s'", op.name.c_str(), attribute);
}

bool Call::given(const char* attribute) const {
    return values_[position(attribute)].kind != Value::none;
}

double Call::number_or_scalar(const char* attribute) const {
    const Value& value = values_[position(attribute)];
    need(value.kind == Value::number || value.kind == Value::scalar, "'%s' must be a number",
         attribute);
    return value.kind == Value::scalar ? scalar_value(value.scalar_id) : value.number_value;
}

// A recorded task keeps this number, so a scalar that may change later is refused.
double Call::number(const char* attribute) const {
    need(values_[position(attribute)].kind != Value::scalar || !recording_number(),
         "'%s' cannot be an nn.scalar in a compiled function; pass a number", attribute);
    return number_or_scalar(attribute);
}

int64_t Call::integer(const char* attribute) const {
    return as_integer(op.name.c_str(), attribute, number(attribute));
}

std::string Call::text(const char* attribute) const {
    const Value& value = values_[position(attribute)];
    need(value.kind == Value::text, "'%s' must be a text", attribute);
    return value.text_value;
}

Dims Call::ints(const char* attribute) const {
    const Value& value = values_[position(attribute)];
    if (value.kind == Value::number)
        return {as_integer(op.name.c_str(), attribute, value.number_value)};
    need(value.kind == Value::list, "'%s' must be a list of whole numbers", attribute);
    return value.list_value;
}

Dtype Call::dtype(const char* attribute) const {
    Dtype out = Dtype::f32;
    const std::string name = text(attribute);
    need(parse_dtype(name, &out),
         "there is no dtype '%s'; there are f32, f64, bf16, i32, i64, u8 and bool", name.c_str());
    return out;
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
    for (int64_t value : ints(attribute))
        out.push_back(checked_axis(op.name.c_str(), attribute, value, rank));
    std::sort(out.begin(), out.end());
    need(std::adjacent_find(out.begin(), out.end()) == out.end(), "'%s' names an axis twice",
         attribute);
    return out;
}

std::vector<Patch> Call::patch(const char* attribute, size_t offset) const {
    const Value& value = values_[position(attribute)];
    if (value.kind != Value::scalar) return {};
    return {{Patch::scalar, int32_t(offset), value.scalar_id}};
}

void Call::need_float(const char* input) const {
    const Tensor& t = in(input);
    if (!t) return;
    need(is_float(t.dtype()), "%s is %s; a float dtype (f32, f64, bf16) is needed: %s:to('f32')",
         input, dtype_name(t.dtype()), input);
}

void Call::need_dtype(const char* input, Dtype dtype) const {
    const Tensor& t = in(input);
    if (!t) return;
    need(t.dtype() == dtype, "%s is %s where %s is needed: %s:to('%s')", input,
         dtype_name(t.dtype()), dtype_name(dtype), input, dtype_name(dtype));
}

void Call::need_shape(const char* input, const Dims& shape) const {
    const Tensor& t = in(input);
    if (!t) return;
    need(t.shape() == shape, "%s is %s where %s is needed", input, to_string(t.shape()).c_str(),
         to_string(shape).c_str());
}

void Call::accumulates_into(const char* input) const {
    if (!in(input)) return;
    need_owner(input);
    in(input).changed();
}

void Call::need_owner(const char* input) const {
    need(!in(input).is_view(),
         "%s is a view; an op that changes it in place needs the tensor itself (or a clone())",
         input);
}

}  // namespace nn
