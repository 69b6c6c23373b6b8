// fill, arange and cast. Conversions to integers pass through int64, so that 300 cast to u8 wraps
// as in PyTorch; a bool is x != 0.
#include "kernels/params/fill.h"

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

void fill(const KernelCall& call) {
    const auto& p = call.get<nn_fill_params>();
    visit_any(call.dtype, [&]<class T>(T*) {
        T* y = call.operand<T>(0);
        const T value = call.dtype == Dtype::boolean ? T(p.value != 0) : convert<T>(p.value);
        simd_for(p.n, [=](int64_t i) { y[i] = value; });
    });
}

// y[i] = start + step i, computed in int64 or double.
void arange(const KernelCall& call) {
    const auto& p = call.get<nn_arange_params>();
    visit_any(call.dtype, [&]<class T>(T*) {
        using Step = std::conditional_t<std::numeric_limits<T>::is_integer, int64_t, double>;
        T* y = call.operand<T>(0);
        const Step start = Step(p.start), step = Step(p.step);
        for (int64_t i = 0; i < p.n; ++i) y[i] = T(start + step * Step(i));
    });
}

void cast(const KernelCall& call) {
    const auto& p = call.get<nn_cast_params>();
    visit_any(Dtype(p.from), [&]<class From>(From*) {
        const From* x = call.input<From>(1);
        if (call.dtype == Dtype::boolean) {
            uint8_t* y = call.operand<uint8_t>(0);
            return simd_for(p.n, [=](int64_t i) { y[i] = x[i] != From(0); });
        }
        visit_any(call.dtype, [&]<class To>(To*) {
            To* y = call.operand<To>(0);
            simd_for(p.n, [=](int64_t i) { y[i] = convert<To>(x[i]); });
        });
    });
}

NN_IMPLEMENT(fill, arange, cast);

}  // namespace
}  // namespace nn::NN_TARGET
