// Pooling: the largest element or the mean of the windows that slide over an image, and gradients.
// A thread computes one element.
#include "kernels/cuda/cuda.cuh"
#include "kernels/window.h"

namespace nn::NN_TARGET {
namespace {

struct Number {
    template <class T> NN_HD Acc<T> operator()(T x) const { return number(x); }
};

template <class T>
__global__ void __launch_bounds__(threads) pool_kernel(T* y, const T* x, nn_pool_params p) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    const int64_t area = p.y.out * p.x.out, plane = i / area, at = i % area;
    if (plane < p.planes)
        y[i] = stored<T>(
            pooled<Acc<T>>(x + plane * p.y.in * p.x.in, p, at / p.x.out, at % p.x.out, Number()));
}

// The outputs whose window covers element `i`.
__device__ Span outputs_over(const nn_window_axis& axis, int64_t i) {
    return {ceil_quotient(i + axis.pad - axis.taps + 1, axis.stride),
            smaller((i + axis.pad) / axis.stride + 1, axis.out)};
}

// The gradient of element `at` of the plane x: a sum over the windows that cover it, in order.
template <class T>
__device__ Acc<T> pooled_slope(const T* x, const T* dy, const nn_pool_params& p, int64_t at) {
    const Span rows = outputs_over(p.y, at / p.x.in), columns = outputs_over(p.x, at % p.x.in);
    Acc<T> sum = 0;
    for (int64_t oy = rows.begin; oy < rows.end; ++oy)
        for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
            const Window w = window_of(p, oy, ox);
            const Acc<T> d = number(dy[oy * p.x.out + ox]);
            if (p.kind != 0)
                sum += d / Acc<T>(divisor_of(p, w));
            else if (largest_at(x, p.x.in, w, Number()) == at)
                sum += d;
        }
    return sum;
}

template <class T>
__global__ void __launch_bounds__(threads, 2)
    pool_backward_kernel(T* dx, const T* dy, const T* x, nn_pool_params p) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    const int64_t size = p.y.in * p.x.in, plane = i / size;
    if (plane < p.planes)
        dx[i] =
            stored<T>(pooled_slope(x + plane * size, dy + plane * p.y.out * p.x.out, p, i % size));
}

void pool2d(const KernelCall& call) {
    const auto& p = call.get<nn_pool_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        launch_each(call, p.planes * p.y.out * p.x.out, 1, pool_kernel<T>, call.operand<T>(0),
                    call.input<T>(1), p);
    });
}

void pool2d_backward(const KernelCall& call) {
    const auto& p = call.get<nn_pool_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        launch_each(call, p.planes * p.y.in * p.x.in, 1, pool_backward_kernel<T>,
                    call.operand<T>(0), call.input<T>(1), call.input<T>(2), p);
    });
}

NN_IMPLEMENT(pool2d, pool2d_backward);

}  // namespace
}  // namespace nn::NN_TARGET
