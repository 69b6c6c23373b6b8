// LayerNorm (Ba et al., arXiv:1607.06450) and RMSNorm (Zhang and Sennrich, arXiv:1910.07467) with
// the residual sum before them, and their gradients. For y and dx a block computes a row; all loops
// but the first read it from the cache. The gradients of weight and bias are a second sweep over dy
// and s (to be measured against one sweep that keeps them in shared memory).
#include "kernels/cuda/columns.cuh"
#include "kernels/params/layernorm.h"

namespace nn::NN_TARGET {
namespace {

// s, r and bias may be null. stats: (rows, 2), mean and 1/deviation.
template <class T> struct Forward {
    T *y, *s;
    Acc<T>* stats;
    const T *x, *r, *weight, *bias;
    int64_t cols;
    Acc<T> eps;
    bool packed, rms;
    // x + r, rounded to T
    template <int width> __device__ void sum(int64_t at, Acc<T>* v) const {
        load_pack<width>(x + at, v);
        if (!r) return;
        Acc<T> w[width];
        load_pack<width>(r + at, w);
#pragma unroll
        for (int e = 0; e < width; ++e) v[e] = number(stored<T>(v[e] + w[e]));
    }
};

template <class T> __global__ void __launch_bounds__(256) layernorm_kernel(const Forward<T> f) {
    using A = Acc<T>;
    const int64_t row = blockIdx.x, start = row * f.cols;
    A sum = 0;
    each_pack<T>(0, f.cols, f.packed, [&](int64_t j, auto width) {
        A v[width];
        f.template sum<width>(start + j, v);
        for (int e = 0; e < width; ++e) sum += v[e];
        if (f.s) store_pack<width>(f.s + start + j, v);
    });
    const A mean = f.rms ? A(0) : block_reduce(sum, Sum()) / A(f.cols);
    // The variance is the mean of squared differences: E[x^2] - E[x]^2 would cancel.
    A squares = 0;
    each_pack<T>(0, f.cols, f.packed, [&](int64_t j, auto width) {
        A v[width];
        f.template sum<width>(start + j, v);
        for (int e = 0; e < width; ++e) squares += (v[e] - mean) * (v[e] - mean);
    });
    const A rstd = A(1) / math::sqrt(block_reduce(squares, Sum()) / A(f.cols) + f.eps);
    if (threadIdx.x == 0) f.stats[2 * row] = mean, f.stats[2 * row + 1] = rstd;
    each_pack<T>(0, f.cols, f.packed, [&](int64_t j, auto width) {
        A v[width], w[width], b[width] = {};
        f.template sum<width>(start + j, v);
        load_pack<width>(f.weight + j, w);
        if (f.bias) load_pack<width>(f.bias + j, b);
        for (int e = 0; e < width; ++e) v[e] = (v[e] - mean) * rstd * w[e] + b[e];
        store_pack<width>(f.y + start + j, v);
    });
}

void layernorm(const KernelCall& call) {
    const auto& p = call.get<nn_layernorm_params>();
    if (p.rows == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        Forward<T> f{call.operand<T>(0),
                     call.operand<T>(1),
                     call.operand<Acc<T>>(2),
                     call.input<T>(3),
                     call.input<T>(4),
                     call.input<T>(5),
                     call.input<T>(6),
                     p.cols,
                     Acc<T>(p.eps),
                     false,
                     p.rms != 0};
        if (!f.r) f.s = nullptr;
        f.packed = rows_packed<T>(p.cols, f.y, f.s, f.x, f.r, f.weight, f.bias);
        launch(call, rows_shape<T>(p.rows, p.cols, f.packed), layernorm_kernel<T>, f);
    });
}

// ds, which may be null, is the gradient of s from the residual path.
template <class T> struct Backward {
    static constexpr int outputs = 2;  // dweight, dbias
    T* dx;
    const T *dy, *s;
    const Acc<T>* stats;
    const T *weight, *ds;
    int64_t cols;
    bool packed, rms;
    // h = (s - mean) rstd, and dy
    template <int width>
    __device__ void normalised(int64_t row, int64_t column, Acc<T>* h, Acc<T>* d) const {
        const Acc<T> mean = stats[2 * row], rstd = stats[2 * row + 1];
        load_pack<width>(s + row * cols + column, h);
        load_pack<width>(dy + row * cols + column, d);
#pragma unroll
        for (int e = 0; e < width; ++e) h[e] = (h[e] - mean) * rstd;
    }
    template <int width>
    __device__ void add(int64_t row, int64_t column, Acc<T> (&sums)[2][width]) const {
        Acc<T> h[width], d[width];
        normalised<width>(row, column, h, d);
#pragma unroll
        for (int e = 0; e < width; ++e) {
            sums[0][e] += d[e] * h[e];
            sums[1][e] += d[e];
        }
    }
};

// dx = rstd (g - mean(g) - h mean(g h)) + ds with g = dy w; RMSNorm has no mean(g).
template <class T> __global__ void __launch_bounds__(256) layernorm_dx_kernel(const Backward<T> b) {
    using A = Acc<T>;
    const int64_t row = blockIdx.x;
    A sum_g = 0, sum_gh = 0;
    each_pack<T>(0, b.cols, b.packed, [&](int64_t j, auto width) {
        A h[width], g[width], w[width];
        b.template normalised<width>(row, j, h, g);
        load_pack<width>(b.weight + j, w);
        for (int e = 0; e < width; ++e) {
            sum_g += g[e] * w[e];
            sum_gh += g[e] * w[e] * h[e];
        }
    });
    const A mean_g = b.rms ? A(0) : block_reduce(sum_g, Sum()) / A(b.cols);
    const A mean_gh = block_reduce(sum_gh, Sum()) / A(b.cols);
    const A rstd = b.stats[2 * row + 1];
    each_pack<T>(0, b.cols, b.packed, [&](int64_t j, auto width) {
        A h[width], g[width], w[width], residual[width] = {};
        b.template normalised<width>(row, j, h, g);
        load_pack<width>(b.weight + j, w);
        if (b.ds) load_pack<width>(b.ds + row * b.cols + j, residual);
        for (int e = 0; e < width; ++e)
            g[e] = rstd * (g[e] * w[e] - mean_g - h[e] * mean_gh) + residual[e];
        store_pack<width>(b.dx + row * b.cols + j, g);
    });
}

void layernorm_backward(const KernelCall& call) {
    const auto& p = call.get<nn_layernorm_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        Backward<T> b{call.operand<T>(0), call.input<T>(3), call.input<T>(4), call.input<A>(5),
                      call.input<T>(6),   call.input<T>(7), p.cols,           false,
                      p.rms != 0};
        b.packed = rows_packed<T>(p.cols, b.dx, b.dy, b.s, b.weight, b.ds);
        if (p.rows > 0 &&
            !launch(call, rows_shape<T>(p.rows, p.cols, b.packed), layernorm_dx_kernel<T>, b))
            return;
        sum_columns<T>(call, b, p.rows, p.cols, b.packed, p.first != 0,
                       {call.operand<A>(1), call.operand<A>(2)});
    });
}

NN_IMPLEMENT(layernorm, layernorm_backward);

}  // namespace
}  // namespace nn::NN_TARGET
