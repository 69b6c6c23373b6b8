// An op is what users call: a name, its inputs and attributes, and a function that checks them,
// makes the outputs and emits tile tasks. The registry is the only list of ops: the Lua names,
// help, completion, the reference and the property tests (tiled = untiled, gradients, compiled =
// eager) are all made from it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/graph/task.h"
#include "engine/tile/tensor.h"

namespace nn {

class Call;

// kind: int, number, bool, text, ints (a list), dtype, axis (1-based,
// negative from the end), axes (a list of those). fallback: the default as text; "" when the
// attribute must be given, "nil" when it may not be.
struct Attribute {
    std::string name, kind, fallback, doc;
};

struct Op {
    std::string name;
    std::string doc;  // first line "name(x, {axis=-1}) -> y"
    std::vector<std::string>
        inputs;  // "x", "bias?" (optional), "tensors*" (a list; then the only input)
    std::vector<Attribute> attributes = {};
    std::vector<std::string>
        samples;  // Lua tables of arguments for the tests, e.g. "{x={3,5}, axis=1}"
    std::string no_gradient = "";  // the reason where there is none; else lua/nn/rules.lua has one
    void (*run)(Call& call) = nullptr;
    std::string category = "";  // heading in the reference
    // Kernels that its tasks run, beside the one called like the op and those that cut and copy.
    std::vector<std::string> kernels = {};
    std::string source = "";  // where it is declared: "engine/ops/softmax.cc:40"
};

// An attribute as it was given.
struct Value {
    enum Kind { none, number, text, list, scalar } kind = none;
    double number_value = 0;
    std::string text_value = {};
    Dims list_value = {};
    int32_t scalar_id = 0;
};

class Call {
public:
    Call(const Op& op, std::vector<Tensor> inputs, std::vector<Value> values);

    const Op& op;
    std::vector<Tensor> results;

    const Tensor& in(const char* name) const;  // a null Tensor for an absent optional
    const std::vector<Tensor>& all() const { return inputs_; }
    bool given(const char* attribute) const;
    int64_t integer(const char* attribute) const;
    double number(const char* attribute) const;
    // Of an attribute that patch() follows: the present value where it is a scalar.
    double number_or_scalar(const char* attribute) const;
    bool flag(const char* attribute) const { return number(attribute) != 0; }
    std::string text(const char* attribute) const;
    Dims ints(const char* attribute) const;
    Dtype dtype(const char* attribute) const;
    int axis(const char* attribute, size_t rank) const;  // 0-based
    std::vector<int> axes(const char* attribute,
                          size_t rank) const;  // sorted, 0-based; all of them when not given
    // The patch that fills this attribute in at submission, if it is a scalar.
    std::vector<Patch> patch(const char* attribute, size_t offset) const;

    void result(Tensor tensor) { results.push_back(std::move(tensor)); }
    // Of an op that may have nothing to do: its input as a view, so that a later change in place of
    // one is not taken for a change of the other.
    void result_of(const Tensor& input, const Tensor& tensor) {
        result(tensor.identity() == input.identity() ? tensor.refreshed_view() : tensor);
    }
    void need(bool condition, const char* text, ...) const __attribute__((format(printf, 3, 4)));
    void need_float(const char* input) const;
    void need_dtype(const char* input, Dtype dtype) const;
    void need_shape(const char* input, const Dims& shape) const;
    void need_owner(const char* input) const;        // of an op that changes it in place
    void accumulates_into(const char* input) const;  // likewise, of an optional gradient

private:
    size_t position(const char* attribute) const;
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
bool parse_dtype(const std::string& name, Dtype* out);

}  // namespace nn
