// fill, arange and cast. Conversions to integers pass through int64, so that 300 cast to u8 wraps
// as in PyTorch; a bool is x != 0.
#include "kernels/cpu/cpu.h"

namespace nn::NN_TARGET {
namespace {

template <class To, class From> To convert(From x) {
    if constexpr (std::numeric_limits<From>::is_integer || !std::numeric_limits<To>::is_integer)
        return To(x);
    else if constexpr (sizeof(To) == sizeof(int32_t))
        return To(x);  // one vector instruction; int64 takes many
    else
        return To(int64_t(x));
}
template <class To> To convert(bf16 x) { return convert<To, float>(x); }

template <class T> void fill_tile(T* y, int64_t n, T value) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = value;
}

void fill(const KernelCall& call) {
    const auto& p = call.get<nn_fill_params>();
    if (call.dtype == Dtype::boolean)
        return fill_tile<uint8_t>(call.operand<uint8_t>(0), p.n, p.value != 0);
    visit_any(call.dtype,
              [&]<class T>(T*) { fill_tile(call.operand<T>(0), p.n, convert<T>(p.value)); });
}

// y[i] = start + step i, computed in int64 or double.
template <class T> void arange_tile(T* y, const nn_arange_params& p) {
    using Step = std::conditional_t<std::numeric_limits<T>::is_integer, int64_t, double>;
    const Step start = Step(p.start), step = Step(p.step);
    for (int64_t i = 0; i < p.n; ++i) y[i] = T(start + step * Step(i));
}

void arange(const KernelCall& call) {
    visit_any(call.dtype,
              [&]<class T>(T*) { arange_tile(call.operand<T>(0), call.get<nn_arange_params>()); });
}

template <class To, class From> void cast_tile(To* y, const From* x, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}

void cast(const KernelCall& call) {
    const auto& p = call.get<nn_cast_params>();
    visit_any(Dtype(p.from), [&]<class From>(From*) {
        const From* x = call.input<From>(1);
        if (call.dtype == Dtype::boolean) {
            uint8_t* y = call.operand<uint8_t>(0);
#pragma omp simd
            for (int64_t i = 0; i < p.n; ++i) y[i] = x[i] != From(0);
            return;
        }
        visit_any(call.dtype, [&]<class To>(To*) { cast_tile(call.operand<To>(0), x, p.n); });
    });
}

NN_IMPLEMENT(fill, arange, cast);

}  // namespace
}  // namespace nn::NN_TARGET
