// LayerNorm (Ba et al., arXiv:1607.06450) with the residual sum before it, and the gradients of
// both. Each kernel reads and writes every activation once.
#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

// s, r and bias may be null. stats: (rows, 2), mean and 1/deviation.
template <class T> struct Forward {
    T *y, *s;
    Acc<T>* stats;
    const T *x, *r, *weight, *bias;
};

// v = x + r, rounded to T; returns its sum.
template <class T> Acc<T> residual_row(const Forward<T>& f, int64_t at, int64_t n, Acc<T>* v) {
    const T* x = f.x + at;
    Acc<T> sum = 0;
    if (!f.r) {
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < n; ++j) {
            v[j] = Acc<T>(x[j]);
            sum += v[j];
        }
        return sum;
    }
    const T* r = f.r + at;
    T* s = f.s + at;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) {
        const T total = T(Acc<T>(x[j]) + Acc<T>(r[j]));
        s[j] = total;
        v[j] = Acc<T>(total);
        sum += v[j];
    }
    return sum;
}

// The variance is the mean of squared differences: E[x^2] - E[x]^2 would cancel.
template <class T>
void forward_row(const Forward<T>& f, const nn_layernorm_params& p, int64_t i, Acc<T>* v) {
    const int64_t n = p.cols;
    const Acc<T> mean = residual_row(f, i * n, n, v) / Acc<T>(n);
    Acc<T> squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < n; ++j) {
        v[j] -= mean;
        squares += v[j] * v[j];
    }
    const Acc<T> rstd = Acc<T>(1) / std::sqrt(squares / Acc<T>(n) + Acc<T>(p.eps));
    f.stats[2 * i] = mean;
    f.stats[2 * i + 1] = rstd;
    T* y = f.y + i * n;
    const T *weight = f.weight, *bias = f.bias;  // locals: the vectoriser distrusts members
    if (bias) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) y[j] = T(v[j] * rstd * Acc<T>(weight[j]) + Acc<T>(bias[j]));
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) y[j] = T(v[j] * rstd * Acc<T>(weight[j]));
    }
}

void layernorm(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_layernorm_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        const Forward<T> f{call.operand<T>(0), call.operand<T>(1), call.operand<Acc<T>>(2),
                           call.input<T>(3),   call.input<T>(4),   call.input<T>(5),
                           call.input<T>(6)};
        Acc<T>* v = scratch.get<Acc<T>>(p.cols);
        for (int64_t i = 0; i < p.rows; ++i) forward_row(f, p, i, v);
    });
}

// dbias and ds may be null. ds is the gradient of s from the residual path.
template <class T> struct Backward {
    T* dx;
    Acc<T>*dweight, *dbias;
    const T *dy, *s;
    const Acc<T>* stats;
    const T *weight, *ds;
};

// dx = rstd (g - mean(g) - h mean(g h)) + ds with h = (s - mean) rstd and g = dy w, scratch rows.
template <class T>
void backward_row(const Backward<T>& b, int64_t n, int64_t i, Acc<T>* h, Acc<T>* g) {
    const T *dy = b.dy + i * n, *s = b.s + i * n, *ds = b.ds ? b.ds + i * n : nullptr,
            *weight = b.weight;
    Acc<T>*dweight = b.dweight, *dbias = b.dbias;
    const Acc<T> mean = b.stats[2 * i], rstd = b.stats[2 * i + 1];
    Acc<T> sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
    for (int64_t j = 0; j < n; ++j) {
        const Acc<T> d = Acc<T>(dy[j]);
        h[j] = (Acc<T>(s[j]) - mean) * rstd;
        g[j] = d * Acc<T>(weight[j]);
        sum_g += g[j];
        sum_gh += g[j] * h[j];
        dweight[j] += d * h[j];
    }
    if (dbias) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) dbias[j] += Acc<T>(dy[j]);
    }
    const Acc<T> mean_g = sum_g / Acc<T>(n), mean_gh = sum_gh / Acc<T>(n);
    T* dx = b.dx + i * n;
    if (ds) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j)
            dx[j] = T(rstd * (g[j] - mean_g - h[j] * mean_gh) + Acc<T>(ds[j]));
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) dx[j] = T(rstd * (g[j] - mean_g - h[j] * mean_gh));
    }
}

void layernorm_backward(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_layernorm_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        const Backward<T> b{call.operand<T>(0), call.operand<Acc<T>>(1), call.operand<Acc<T>>(2),
                            call.input<T>(3),   call.input<T>(4),        call.input<Acc<T>>(5),
                            call.input<T>(6),   call.input<T>(7)};
        if (p.first) {
            row_fill(b.dweight, p.cols, Acc<T>(0));
            if (b.dbias) row_fill(b.dbias, p.cols, Acc<T>(0));
        }
        Acc<T>* h = scratch.get<Acc<T>>(2 * p.cols);
        for (int64_t i = 0; i < p.rows; ++i) backward_row(b, p.cols, i, h, h + p.cols);
    });
}

NN_IMPLEMENT(layernorm, layernorm_backward);

}  // namespace
}  // namespace nn::NN_TARGET
