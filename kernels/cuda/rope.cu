// Rotary position embedding of the heads of packed rows: a block computes a row, and a thread the
// same component of all heads, so that it computes each sine once.
#include "kernels/cuda/cuda.cuh"
#include "kernels/math/angle.h"
#include "kernels/params/rope.h"
#include "kernels/rope.h"

namespace nn::NN_TARGET {
namespace {

template <class T>
__global__ void __launch_bounds__(threads)
    rope_kernel(T* y, const T* x, const void* start, nn_rope_params p) {
    using A = Acc<T>;
    const int64_t row = blockIdx.x, b = row / p.len, half = p.rotated / 2;
    const int64_t given = start ? load_index(start, Dtype(p.start_dtype), b) : 0;
    const A position = A(p.start + given + row % p.len), scale = A(p.scale);
    x += row * p.width, y += row * p.width;
    for (int64_t j = threadIdx.x; j < half; j += blockDim.x) {
        A s, c;
        math::sin_cos(position * A(rope_frequency(p, j)), &s, &c);
        s *= p.inverse ? -scale : scale, c *= scale;
        for (int64_t at = j; at < p.heads * p.head_dim; at += p.head_dim) {
            const A first = number(x[at]), second = number(x[at + half]);
            y[at] = stored<T>(first * c - second * s);
            y[at + half] = stored<T>(second * c + first * s);
        }
    }
    for (int64_t at = threadIdx.x; at < p.width; at += blockDim.x)
        if (at >= p.heads * p.head_dim || at % p.head_dim >= p.rotated) y[at] = x[at];
}

void rope(const KernelCall& call) {
    const auto& p = call.get<nn_rope_params>();
    if (p.batch * p.len == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        launch(call, {blocks_for(p.batch * p.len, 1), threads}, rope_kernel<T>, call.operand<T>(0),
               call.input<T>(1), call.input<void>(2), p);
    });
}

NN_IMPLEMENT(rope);

}  // namespace
}  // namespace nn::NN_TARGET
