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

template <class T>
__global__ void __launch_bounds__(threads)
    pool_backward_kernel(T* dx, const T* dy, const T* x, nn_pool_params p) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    const int64_t size = p.y.in * p.x.in, plane = i / size;
    if (plane < p.planes)
        dx[i] = stored<T>(pooled_slope<Acc<T>>(x + plane * size, dy + plane * p.y.out * p.x.out, p,
                                               i % size, Number()));
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
