// Pooling: the largest element or the mean of the windows that slide over an image, and gradients.
#include "kernels/cpu/cpu.h"
#include "kernels/window.h"

namespace nn::NN_TARGET {
namespace {

struct Number {
    template <class T> Acc<T> operator()(T x) const { return Acc<T>(x); }
};

void pool2d(const KernelCall& call) {
    const auto& p = call.get<nn_pool_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        T* y = call.operand<T>(0);
        const T* x = call.input<T>(1);
        for (int64_t plane = 0; plane < p.planes; ++plane, x += p.y.in * p.x.in)
            for (int64_t i = 0; i < p.y.out; ++i)
                for (int64_t j = 0; j < p.x.out; ++j)
                    *y++ = T(pooled<Acc<T>>(x, p, i, j, Number()));
    });
}

void pool2d_backward(const KernelCall& call) {
    const auto& p = call.get<nn_pool_params>();
    const int64_t size = p.y.in * p.x.in;
    visit_float(call.dtype, [&]<class T>(T*) {
        T* dx = call.operand<T>(0);
        const T *dy = call.input<T>(1), *x = call.input<T>(2);
        for (int64_t plane = 0; plane < p.planes; ++plane, x += size, dy += p.y.out * p.x.out)
            for (int64_t at = 0; at < size; ++at)
                *dx++ = T(pooled_slope<Acc<T>>(x, dy, p, at, Number()));
    });
}

NN_IMPLEMENT(pool2d, pool2d_backward);

}  // namespace
}  // namespace nn::NN_TARGET
