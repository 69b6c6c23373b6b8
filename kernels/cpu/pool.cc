// Pooling: the largest element or the mean of the windows that slide over an image, and gradients.
#include "kernels/cpu/row.h"
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

// Adds the gradient d of the result for a window to those of its elements.
template <class T>
void add_slope(Acc<T>* dx, const T* x, const nn_pool_params& p, const Window& w, Acc<T> d) {
    if (p.kind == 0) {
        dx[largest_at(x, p.x.in, w, Number())] += d;
        return;
    }
    const Acc<T> each = d / Acc<T>(divisor_of(p, w));
    for (int64_t i = w.y.begin; i < w.y.end; ++i)
        for (int64_t j = w.x.begin; j < w.x.end; ++j) dx[i * p.x.in + j] += each;
}

void pool2d_backward(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_pool_params>();
    const int64_t size = p.y.in * p.x.in;
    visit_float(call.dtype, [&]<class T>(T*) {
        T* dx = call.operand<T>(0);
        const T *dy = call.input<T>(1), *x = call.input<T>(2);
        Acc<T>* const sums = scratch.get<Acc<T>>(size);
        for (int64_t plane = 0; plane < p.planes; ++plane, x += size, dx += size) {
            row_fill(sums, size, Acc<T>(0));
            for (int64_t i = 0; i < p.y.out; ++i)
                for (int64_t j = 0; j < p.x.out; ++j)
                    add_slope(sums, x, p, window_of(p, i, j), Acc<T>(*dy++));
            row_convert(sums, size, dx);
        }
    });
}

NN_IMPLEMENT(pool2d, pool2d_backward);

}  // namespace
}  // namespace nn::NN_TARGET
