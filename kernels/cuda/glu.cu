// Gated linear units, y = f(gate) up, and their gradient.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/glu.h"
#include "kernels/glu.h"
#include "kernels/params/glu.h"

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
// one of each half.
template <class Gate, class T> struct GluSource {
    static constexpr int outputs = 2;
    T* dx;
    const T *dy, *x;
    int64_t cols, ld, ld_dy;
    template <int width>
    __device__ void add(int64_t row, int64_t column, Acc<T> (&sums)[2][width]) const {
        const int64_t gate = row * ld + column, up = gate + cols;
        Acc<T> d[width], g[width], u[width];
        load_pack<width>(dy + row * ld_dy + column, d);
        load_pack<width>(x + gate, g);
        load_pack<width>(x + up, u);
#pragma unroll
        for (int e = 0; e < width; ++e) {
            u[e] *= d[e] * Gate::slope(g[e]);
            d[e] *= Gate::value(g[e]);
            sums[0][e] += u[e];
            sums[1][e] += d[e];
        }
        store_pack<width>(dx + gate, u);
        store_pack<width>(dx + up, d);
    }
};

void glu_backward(const KernelCall& call) {
    const auto& p = call.get<nn_glu_params>();
    run_glu_backward(call, {call.operand<void>(0), call.operand<void>(1), call.input<void>(2),
                            call.input<void>(3), p.rows, p.cols, 2 * p.cols, p.cols, p.activation,
                            p.first != 0});
}

NN_IMPLEMENT(glu, glu_backward);

}  // namespace

void run_glu_backward(const KernelCall& call, const GluBackward& g) {
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_glu(g.activation, [&]<class Gate>(Gate) {
            const GluSource<Gate, T> source{static_cast<T*>(g.dx),
                                            static_cast<const T*>(g.dy),
                                            static_cast<const T*>(g.x),
                                            g.cols,
                                            g.ld,
                                            g.ld_dy};
            const bool packed =
                rows_packed<T>(g.cols, g.dx, g.dy, g.x) && (g.ld | g.ld_dy) % lanes16<T> == 0;
            auto* const dbias = static_cast<Acc<T>*>(g.dbias);
            sum_columns<T>(call, source, g.rows, g.cols, packed, g.first,
                           {dbias, dbias ? dbias + g.cols : nullptr});
        });
    });
}

}  // namespace nn::NN_TARGET
