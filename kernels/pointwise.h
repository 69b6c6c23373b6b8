// What the pointwise kernels for CPU and CUDA share: the arithmetic of each op of
// kernels/pointwise.inc as a functor, the forms that apply it to operands, the merging of axes, and
// the registration. T, the type computed in, is float, double or int64_t. A file that includes this
// defines compute(), and may define NN_PART to implement only some of the kernels.
#pragma once
#include <type_traits>

#include "kernels/implement.h"
#include "kernels/math/functions.h"
#include "kernels/params/pointwise.h"

namespace nn::NN_TARGET::pointwise {
using namespace math;

// name_op::value is f; slope, or slope_a and slope_b, are its derivatives.
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

// A form applies a functor to operands: `count` operands follow the output, and apply() reads those
// whose bit is set in `needed`. If `condition`, the first is a bool, whatever the call's dtype.
template <int n, int mask, bool first_is_bool = false> struct Operands {
    static constexpr int count = n, needed = mask;
    static constexpr bool condition = first_is_bool;
};
template <class Op> struct Unary : Operands<1, 1> {
    template <class T> NN_HD static auto apply(T x, T, T, T) { return Op::value(x); }
};
template <class Op> struct Binary : Operands<2, 3> {
    template <class T> NN_HD static auto apply(T a, T b, T, T) { return Op::value(a, b); }
};
template <class Op> struct Select : Operands<3, 7, true> {
    template <class T> NN_HD static auto apply(T c, T a, T b, T) {
        return Op::value(c != T(0), a, b);
    }
};
template <class Op, int slope_needs> struct UnaryBackward : Operands<3, 1 | slope_needs << 1> {
    template <class T> NN_HD static auto apply(T dy, T x, T y, T) { return dy * Op::slope(x, y); }
};
template <class Op, int slope_needs, bool of_b>
struct BinaryBackward : Operands<4, 1 | slope_needs << 1> {
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

constexpr bool ANY = true, SAME = true, FLOATS = false;  // the dtypes column: are integers allowed?

// The dtype whose elements are of type T.
template <class T> constexpr Dtype computed = Dtype::i64;
template <> constexpr Dtype computed<float> = Dtype::f32;
template <> constexpr Dtype computed<double> = Dtype::f64;

struct Source {
    const char* data;  // nullptr: `scalar` replaces the operand
    double scalar;
    Dtype dtype;
    int64_t stride[8];
};
// The output and the operands of a call, with axes merged where all operands allow it. The last
// axis, the row, is contiguous in the output.
struct Layout {
    int ndim, count;
    Dtype out;
    int64_t extent[8], total;
    Source source[4];
};

static inline bool mergeable(const Layout& layout, int axis, const nn_pointwise_params& p,
                             int64_t next) {
    for (int k = 0; k < layout.count; ++k)
        if (layout.source[k].stride[axis] != p.stride[k][next] * p.extent[next]) return false;
    return true;
}

static inline void merge_axes(Layout& layout, const nn_pointwise_params& p) {
    layout.ndim = layout.total = 1;
    layout.extent[0] = 1;
    for (int64_t axis = 0; axis < p.ndim; ++axis) {
        layout.total *= p.extent[axis];
        if (p.extent[axis] == 1) continue;
        int into = layout.ndim - 1;
        if (layout.extent[into] == 1 || mergeable(layout, into, p, axis))
            layout.extent[into] *= p.extent[axis];
        else
            layout.extent[into = layout.ndim++] = p.extent[axis];
        for (int k = 0; k < layout.count; ++k) layout.source[k].stride[into] = p.stride[k][axis];
    }
}

// What make_layout() must know of a form.
struct FormTraits {
    int count, needed;
    bool condition, predicate, integers;
};
template <class Form, bool integers>
constexpr FormTraits traits = {Form::count, Form::needed, Form::condition,
                               std::is_same_v<decltype(Form::apply(1.0, 1.0, 1.0, 1.0)), bool>,
                               integers};

// False, and the call fails, if the form does not take its dtype or an operand is missing.
static inline bool make_layout(const KernelCall& call, const FormTraits& form, Layout& layout) {
    const auto& p = call.get<nn_pointwise_params>();
    if (!form.integers && !is_float(call.dtype)) {
        call.fail("takes f32, f64 or bf16, not %s", dtype_name(call.dtype));
        return false;
    }
    layout.count = form.count;
    for (int k = 0; k < form.count; ++k) {
        const bool constant = (p.scalar_mask >> k & 1) || !(form.needed >> k & 1);
        Source& source = layout.source[k];
        source = {constant ? nullptr : call.input<char>(k + 1),
                  p.scalar[k],
                  form.condition && k == 0 ? Dtype::boolean : call.dtype,
                  {1}};
        if (!constant && !source.data) {
            call.fail("operand %d is missing and no scalar replaces it", k + 1);
            return false;
        }
    }
    merge_axes(layout, p);
    layout.out = form.predicate ? Dtype::boolean : call.dtype;
    return true;
}

namespace {

// Applies a form to every element, computing in T.
template <class Form, class T> void compute(const KernelCall& call, const Layout& layout);

template <class Form, bool integers> void kernel(const KernelCall& call) {
    Layout layout;
    if (!make_layout(call, traits<Form, integers>, layout)) return;
    if (call.dtype == Dtype::f64) return compute<Form, double>(call, layout);
    if (is_float(call.dtype)) return compute<Form, float>(call, layout);
    if constexpr (integers) compute<Form, int64_t>(call, layout);
}

constexpr char names[] =
#define NN_POINTWISE(name, ...) #name ","
#include "kernels/pointwise_kernels.inc"
    ;
constexpr KernelFn implemented[] = {
#define NN_POINTWISE(name, operands, dtypes, ...) &kernel<__VA_ARGS__, dtypes>,
#include "kernels/pointwise_kernels.inc"
};
const ImplementationRegistrar registrar(NN_TEXT_OF(NN_TARGET), names, implemented);

}  // namespace
}  // namespace nn::NN_TARGET::pointwise
