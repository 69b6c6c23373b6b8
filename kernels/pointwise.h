// What the CPU and CUDA kernels of kernels/pointwise.inc share: the arithmetic of each op as a
// functor, compiled by both from the same text; the forms in which a kernel calls it; and the
// merging of axes. Everything is computed in T = float, double or int64_t.
#pragma once
#include <type_traits>

#include "kernels/kernel.h"
#include "kernels/math.h"

namespace nn::NN_ISA::pointwise {
using namespace math;

// name_op::value is f; name_op::slope, or slope_a and slope_b, are its derivatives.
#define NN_FUNCTION(name, result, expression, ...) \
    template <class T> NN_HD static result name(__VA_ARGS__) { return expression; }
#define NN_UNUSED [[maybe_unused]]
#define UNARY(name, dtypes, lo, hi, f, df_dx, needs, doc)          \
    struct name##_op {                                             \
        NN_FUNCTION(value, T, f, T x)                              \
        NN_FUNCTION(slope, T, df_dx, NN_UNUSED T x, NN_UNUSED T y) \
    };
#define FLAT(name, dtypes, lo, hi, f, doc) \
    struct name##_op {                     \
        NN_FUNCTION(value, T, f, T x)      \
    };
#define PREDICATE(name, dtypes, lo, hi, f, doc) \
    struct name##_op {                          \
        NN_FUNCTION(value, bool, f, T x)        \
    };
#define BINARY(name, dtypes, a_lo, a_hi, b_lo, b_hi, f, df_da, needs_a, df_db, needs_b, doc) \
    struct name##_op {                                                                       \
        NN_FUNCTION(value, T, f, T a, T b)                                                   \
        NN_FUNCTION(slope_a, T, df_da, NN_UNUSED T a, NN_UNUSED T b, NN_UNUSED T y)          \
        NN_FUNCTION(slope_b, T, df_db, NN_UNUSED T a, NN_UNUSED T b, NN_UNUSED T y)          \
    };
#define COMPARE(name, dtypes, f, doc)         \
    struct name##_op {                        \
        NN_FUNCTION(value, bool, f, T a, T b) \
    };
#define SELECT(name, dtypes, f, doc)               \
    struct name##_op {                             \
        NN_FUNCTION(value, T, f, bool c, T a, T b) \
    };
#include "kernels/pointwise.inc"
#undef NN_FUNCTION
#undef NN_UNUSED

// A form is how a kernel uses a functor: `count` operands follow the output, of which apply() reads
// those whose bit is set in `needed`; the first is a bool whatever the call's dtype if `condition`.
template <class Op> struct Unary {
    static constexpr int count = 1, needed = 1;
    static constexpr bool condition = false;
    template <class T> NN_HD static auto apply(T x, T, T, T) { return Op::value(x); }
};
template <class Op> struct Binary {
    static constexpr int count = 2, needed = 3;
    static constexpr bool condition = false;
    template <class T> NN_HD static auto apply(T a, T b, T, T) { return Op::value(a, b); }
};
template <class Op> struct Select {
    static constexpr int count = 3, needed = 7;
    static constexpr bool condition = true;
    template <class T> NN_HD static auto apply(T c, T a, T b, T) {
        return Op::value(c != T(0), a, b);
    }
};
template <class Op, int slope_needs> struct UnaryBackward {
    static constexpr int count = 3, needed = 1 | slope_needs << 1;
    static constexpr bool condition = false;
    template <class T> NN_HD static auto apply(T dy, T x, T y, T) { return dy * Op::slope(x, y); }
};
template <class Op, int slope_needs, bool of_b> struct BinaryBackward {
    static constexpr int count = 4, needed = 1 | slope_needs << 1;
    static constexpr bool condition = false;
    template <class T> NN_HD static auto apply(T dy, T a, T b, T y) {
        return dy * (of_b ? Op::slope_b(a, b, y) : Op::slope_a(a, b, y));
    }
};

// Which of `names` a derivative reads, as bits: needs_mask("xy", "y") is 2.
constexpr int needs_mask(const char* names, const char* needs) {
    int mask = 0;
    for (int k = 0; names[k]; ++k)
        for (const char* c = needs; *c; ++c)
            if (*c == names[k]) mask |= 1 << k;
    return mask;
}

constexpr bool ANY = true, SAME = true, FLOATS = false;  // the dtypes column: integers are allowed

// The dtype whose elements are used without conversion when computing in T.
template <class T> constexpr Dtype computed = Dtype::i64;
template <> constexpr Dtype computed<float> = Dtype::f32;
template <> constexpr Dtype computed<double> = Dtype::f64;

struct Source {
    const char* data;  // nullptr where `scalar` stands for the operand
    double scalar;
    Dtype dtype;
    int64_t stride[8];
};
// A call with its axes merged as far as all operands allow; axis ndim - 1, the row, is contiguous
// in the output.
struct Plan {
    int ndim, count;
    Dtype out;
    int64_t extent[8], total;
    Source source[4];
};

static inline bool mergeable(const Plan& plan, int axis, const nn_pointwise_params& p,
                             int64_t next) {
    for (int k = 0; k < plan.count; ++k)
        if (plan.source[k].stride[axis] != p.stride[k][next] * p.extent[next]) return false;
    return true;
}

static inline void merge_axes(Plan& plan, const nn_pointwise_params& p) {
    plan.ndim = plan.total = 1;
    plan.extent[0] = 1;
    for (int64_t axis = 0; axis < p.ndim; ++axis) {
        plan.total *= p.extent[axis];
        if (p.extent[axis] == 1) continue;
        int into = plan.ndim - 1;
        if (plan.extent[into] == 1 || mergeable(plan, into, p, axis))
            plan.extent[into] *= p.extent[axis];
        else
            plan.extent[into = plan.ndim++] = p.extent[axis];
        for (int k = 0; k < plan.count; ++k) plan.source[k].stride[into] = p.stride[k][axis];
    }
}

// False, with the failure noted, when the form does not take the call's dtype or misses an operand.
template <class Form, bool integers> bool make_plan(const KernelCall& call, Plan& plan) {
    const auto& p = call.get<nn_pointwise_params>();
    if (!integers && !is_float(call.dtype)) {
        call.fail("takes f32, f64 or bf16, not %s", dtype_name(call.dtype));
        return false;
    }
    plan.count = Form::count;
    for (int k = 0; k < Form::count; ++k) {
        const bool constant = (p.scalar_mask >> k & 1) || !(Form::needed >> k & 1);
        Source& source = plan.source[k];
        source = {constant ? nullptr : call.operand<const char>(k + 1),
                  p.scalar[k],
                  Form::condition && k == 0 ? Dtype::boolean : call.dtype,
                  {1}};
        if (!constant && !source.data) {
            call.fail("operand %d is missing and no scalar stands for it", k + 1);
            return false;
        }
    }
    merge_axes(plan, p);
    const bool predicate = std::is_same_v<decltype(Form::apply(1.0, 1.0, 1.0, 1.0)), bool>;
    plan.out = predicate ? Dtype::boolean : call.dtype;
    return true;
}

}  // namespace nn::NN_ISA::pointwise
