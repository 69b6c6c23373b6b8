// Gated linear units, y = f(gate) up, and their gradient.
#include "kernels/cuda/columns.cuh"
#include "kernels/glu.h"

namespace nn::NN_TARGET {
namespace {

// A thread computes `width` neighbouring elements of y; cols is in units of `width`.
template <class Gate, int width, class T>
__global__ void __launch_bounds__(threads)
    glu_kernel(T* y, const T* x, int64_t rows, int64_t cols) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= rows * cols) return;
    const T* gate = x + (i / cols * 2 * cols + i % cols) * width;
    Acc<T> g[width], u[width];
    load_pack<width>(gate, g);
    load_pack<width>(gate + cols * width, u);
#pragma unroll
    for (int e = 0; e < width; ++e) g[e] = Gate::value(g[e]) * u[e];
    store_pack<width>(y + i * width, g);
}

void glu(const KernelCall& call) {
    const auto& p = call.get<nn_glu_params>();
    if (p.rows * p.cols == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_glu(p.activation, [&]<class Gate>(Gate) {
            T* y = call.operand<T>(0);
            const T* x = call.input<T>(1);
            const bool packed = rows_packed<T>(p.cols, y, x);
            const int64_t cols = packed ? p.cols / lanes16<T> : p.cols;
            launch_each(call, p.rows * cols, 1,
                        packed ? glu_kernel<Gate, lanes16<T>, T> : glu_kernel<Gate, 1, T>, y, x,
                        p.rows, cols);
        });
    });
}

// dx = [dy u f'(g), dy f(g)]; its sums over rows are the bias gradient. A column of this source is
// one of dx.
template <class Gate, class T> struct GluSource {
    static constexpr int outputs = 1;
    T* dx;
    const T *dy, *x;
    int64_t cols;  // of dy
    template <int width>
    __device__ void add(int64_t row, int64_t column, Acc<T> (&sums)[1][width]) const {
        const bool is_gate = column < cols;
        const int64_t at = is_gate ? column : column - cols;
        const T* gate = x + row * 2 * cols + at;
        Acc<T> d[width], g[width], u[width];
        load_pack<width>(dy + row * cols + at, d);
        load_pack<width>(gate, g);
        load_pack<width>(gate + cols, u);
#pragma unroll
        for (int e = 0; e < width; ++e) {
            d[e] *= is_gate ? u[e] * Gate::slope(g[e]) : Gate::value(g[e]);
            sums[0][e] += d[e];
        }
        store_pack<width>(dx + row * 2 * cols + column, d);
    }
};

void glu_backward(const KernelCall& call) {
    const auto& p = call.get<nn_glu_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_glu(p.activation, [&]<class Gate>(Gate) {
            const GluSource<Gate, T> source{call.operand<T>(0), call.input<T>(2), call.input<T>(3),
                                            p.cols};
            sum_columns<T>(call, source, p.rows, 2 * p.cols,
                           rows_packed<T>(p.cols, source.dx, source.dy, source.x), p.first != 0,
                           {call.operand<Acc<T>>(1), nullptr});
        });
    });
}

NN_IMPLEMENT(glu, glu_backward);

}  // namespace
}  // namespace nn::NN_TARGET
