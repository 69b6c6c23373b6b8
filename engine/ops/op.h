// An op is what users call: a name, its inputs and attributes, and a function that checks them,
// makes the outputs and emits tile tasks. The registry is the only list of ops: the Lua names,
// help, completion, the reference, the tape and the property tests (tiled = untiled, gradients,
// compiled = eager) all read the declarations below.
#pragma once
#include <concepts>
#include <map>
#include <string>
#include <vector>

#include "engine/graph/task.h"
#include "engine/tile/tensor.h"

namespace nn {

class Call;

// A tensor that an op takes, declared as a name and marks:
//   "x"               a tensor
//   "bias?"           a tensor, or absent
//   "a#"              a tensor or a number
//   "tensors*"        a list of tensors; it is the op's only input
//   "param!"          a tensor that the op changes in place; "velocity?!" may be absent
//   "dweight+weight"  absent, or a tensor to which the op adds the gradient in `weight` in place
struct Input {
    std::string name, gradient_in;  // gradient_in: "weight" of "dweight+weight", else ""
    bool optional = false, number = false, list = false, in_place = false;
    explicit Input(std::string declared);
    bool changes() const { return in_place || !gradient_in.empty(); }
};

// A tensor that an op returns: "y"; "pre?" may be absent; no gradient flows through "stats~". One
// with the name of an input that the op changes is that tensor.
struct Output {
    std::string name;
    bool optional = false, differentiable = true;
    explicit Output(std::string declared);
};

// kind: int, number, bool, text, ints (a list), dtype, axis (1-based, negative from the end) or
// axes (a list of those). default_value is text: "" where the attribute must be given, "nil" where
// it may be left out and has no default.
struct Attribute {
    std::string name, kind, default_value, doc;
    bool is_text() const { return kind == "text" || kind == "dtype"; }
};

struct Op {
    // The signature, "linear(x, weight, bias?) -> y, pre?" (see Input and Output), and below it
    // what the op does. The registry adds the attributes to the signature.
    std::string doc;
    std::vector<Attribute> attributes = {};
    std::vector<std::string> samples = {};  // Lua tables of arguments for the tests
    std::string no_samples = "";            // the reason where there are none
    // The reason where there is none. By default that it takes no tensor or changes one in place.
    std::string no_gradient = "";
    // The op whose gradient this one computes; a rule in Lua calls it. gradient_in: set where it is
    // the gradient in that input only. No rule is needed then: the first input is the gradient of
    // the first output, the others have names of inputs, outputs and attributes of gradient_of.
    std::string gradient_of = "", gradient_in = "";
    // The attribute with the probability of a random mask. The attributes counter and seed identify
    // the mask, so that the gradient can draw it again.
    std::string mask = "";
    bool changes_parameters = false;  // an optimizer: it may change tensors that need gradients
    void (*run)(Call& call) = nullptr;
    std::string category = "";  // heading in the reference; "in place" by default for such an op
    // Kernels that its tasks run, except those that cut and copy. Empty: the one named like the op.
    std::vector<std::string> kernels = {};
    // The registry fills these in: from the signature, and where the op is declared, as in
    // "engine/ops/softmax.cc:40".
    std::string name = "", source = "";
    std::vector<Input> inputs = {};
    std::vector<Output> outputs = {};

    bool in_place() const;  // whether it changes an input, other than by adding a gradient to it
    // Attributes, and behind them one value for each input where any of these may be a number.
    size_t values() const;
};

// The value of an attribute, or a number in place of a tensor.
struct Value {
    enum Kind { none, number, text, list, scalar } kind = none;
    double number_value = 0;
    std::string text_value = {};
    Dims list_value = {};
    int32_t scalar_id = 0;  // of an nn.scalar
};

// How the arguments of Call::need() are shown.
inline std::string shown(const std::string& text) { return text; }
inline std::string shown(const Dims& shape) { return to_string(shape); }
inline std::string shown(const Tensor& t) { return t ? to_string(t.shape()) : "absent"; }
inline std::string shown(Dtype dtype) { return dtype_name(dtype); }
std::string shown(double number);
std::string shown(std::integral auto number) { return std::to_string(number); }

class Call {
public:
    Call(const Op& op, std::vector<Tensor> inputs, std::vector<Value> values);

    const Op& op;
    std::vector<Tensor> results;

    const Tensor& in(const char* name) const;  // null where it is absent
    const std::vector<Tensor>& all() const { return inputs_; }
    // `name` in the following is an attribute, or an input that may be a number.
    bool given(const std::string& name) const { return value(name).kind != Value::none; }
    double number(const std::string& name) const;
    double number_or_scalar(const char* name) const;  // for attributes that patch() follows
    int64_t integer(const char* attribute) const;
    bool flag(const char* attribute) const { return number(attribute) != 0; }
    std::string text(const char* attribute) const;
    Dims ints(const char* attribute) const;
    Dtype dtype(const char* attribute) const;
    int axis(const char* attribute, size_t rank) const;               // 0-based
    std::vector<int> axes(const char* attribute, size_t rank) const;  // sorted; all by default
    // The patch that fills in an nn.scalar at submission; none where the attribute is a number.
    std::vector<Patch> patch(const char* attribute, size_t offset) const;

    void result(Tensor tensor) { results.push_back(std::move(tensor)); }
    // For an op that may have nothing to do: its input as a view, so that a later change in place
    // of one does not count as a change of the other.
    void result_of(const Tensor& input, const Tensor& tensor) {
        result(tensor.identity() == input.identity() ? tensor.refreshed_view() : tensor);
    }
    // Raises an error unless the condition holds; each {} in the text stands for an argument.
    template <class... Arguments>
    void need(bool condition, const char* text, const Arguments&... arguments) const {
        if (!condition) refuse(text, {shown(arguments)...});
    }
    // Checks of an input, which pass where it is absent.
    void need_float(const char* input) const;
    void need_dtype(const char* input, Dtype dtype) const;
    void need_ids(const char* input) const;  // i32 or i64
    void need_shape(const char* input, const Dims& shape) const;
    void need_same_shape(const char* input, const char* other) const;
    void need_tensor(const char* input, const Dims& shape, Dtype dtype) const;

private:
    [[noreturn]] void refuse(const char* text, const std::vector<std::string>& arguments) const;
    void check_inputs();
    void fill_defaults();
    const Value& value(const std::string& name) const;
    std::vector<Tensor> inputs_;
    std::vector<Value> values_;
};

// An op is declared where its registrar is.
struct OpRegistrar {
    OpRegistrar(Op op, const char* file = __builtin_FILE(), int line = __builtin_LINE());
};

const std::map<std::string, Op>& all_ops();
const Op* find_op(const std::string& name);
std::vector<Tensor> apply(const Op& op, std::vector<Tensor> inputs, std::vector<Value> values);
std::vector<const Kernel*> kernels_of(const Op& op);  // sorted by name

}  // namespace nn
