// An op is an operation that users call: its name, inputs and attributes, and a function that
// checks them, creates the outputs and emits tasks. The registry is the only list of ops: Lua
// names, help, completion, the reference, the tape and the property tests (tiled = untiled,
// gradients, compiled = eager) all read the declarations below.
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

// A tensor that an op returns: "y"; "pre?" may be absent; no gradient flows through "stats~". An
// output with the name of a changed input is that tensor.
struct Output {
    std::string name;
    bool optional = false, differentiable = true;
    explicit Output(std::string declared);
};

// kind: int, number, bool, text, ints (a list), dtype, axis (1-based, negative from the end) or
// axes (a list of those). default_value is text: "" if the attribute must be given, "nil" if it is
// optional and has no default.
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
    std::string no_samples = "";            // why there are none
    // Why the op has no gradient; by default, that it takes no tensor or changes one in place.
    std::string no_gradient = "";
    // The op whose gradient this one computes; a rule in Lua calls it. gradient_in: the input, if
    // it is the gradient in one input only. Then no rule is needed: the first input is the gradient
    // of the first output, the others have names of inputs, outputs and attributes of gradient_of.
    std::string gradient_of = "", gradient_in = "";
    // The attribute with the probability of a random mask. The attributes counter and seed identify
    // the mask, so that the gradient can compute it again.
    std::string mask = "";
    bool changes_parameters = false;  // an optimizer: it may change tensors that need gradients
    bool any_rank = false;            // a tensor without axes counts as one with an axis of size 1
    void (*run)(Call& call) = nullptr;
    std::string category = "";  // heading in the reference; default of an op in place: "in place"
    // Kernels of its tasks, except copy, cast and fill. Empty: the kernel with the op's name.
    std::vector<std::string> kernels = {};
    // Set by the registry from the signature; source: the declaration, "engine/ops/softmax.cc:40".
    std::string name = "", source = "";
    std::vector<Input> inputs = {};
    std::vector<Output> outputs = {};

    bool in_place() const;  // whether it changes an input, other than by adding a gradient to it
    // The number of a call's values: one per attribute, then one per input if any may be a number.
    size_t values() const;
};

// The value of an attribute, or a number in place of a tensor.
struct Value {
    enum Kind { none, number, text, list, scalar } kind = none;
    double number_value = 0;
    std::string text_value = {};
    Dims list_value = {};
    int32_t scalar_id = -1;  // of an nn.scalar
};

// The text of an argument of Call::need().
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

    const Tensor& in(const char* name) const;  // null if it is absent
    const std::vector<Tensor>& all() const { return inputs_; }
    // `name`: an attribute, or an input that may be a number.
    bool given(const std::string& name) const { return value(name).kind != Value::none; }
    double number(const std::string& name) const;
    double number_or_scalar(const char* name) const;  // for attributes that patch() updates
    int64_t integer(const char* attribute) const;
    bool flag(const char* attribute) const { return number(attribute) != 0; }
    std::string text(const char* attribute) const;
    Dims ints(const char* attribute) const;
    Dtype dtype(const char* attribute) const;
    int axis(const char* attribute, size_t rank) const;               // 0-based
    std::vector<int> axes(const char* attribute, size_t rank) const;  // sorted; all by default
    int32_t scalar(const char* name) const { return value(name).scalar_id; }  // -1: none
    // The patch that sets an nn.scalar at submission; none if the attribute is a number.
    std::vector<Patch> patch(const char* attribute, size_t offset) const;
    // Fills x with the number `name`, or at submission with the value of its nn.scalar.
    void fill(const Tensor& x, const char* name) const;

    void result(Tensor tensor) { results.push_back(std::move(tensor)); }
    // For an op that may return its input: returns a view of it then, so that using the result
    // after the input changed in place is an error.
    void result_of(const Tensor& input, const Tensor& tensor) {
        result(tensor.identity() == input.identity() ? tensor.refreshed_view() : tensor);
    }
    // Raises an error unless the condition holds. Arguments replace each {} in the text.
    template <class... Arguments>
    void need(bool condition, const char* text, const Arguments&... arguments) const {
        if (!condition) refuse(text, {shown(arguments)...});
    }
    // Checks of an input, which pass if it is absent.
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

// Declares an op at construction.
struct OpRegistrar {
    OpRegistrar(Op op, const char* file = __builtin_FILE(), int line = __builtin_LINE());
};

const std::map<std::string, Op>& all_ops();
const Op* find_op(const std::string& name);
std::vector<Tensor> apply(const Op& op, std::vector<Tensor> inputs, std::vector<Value> values);
std::vector<const Kernel*> kernels_of(const Op& op);  // sorted by name

}  // namespace nn
