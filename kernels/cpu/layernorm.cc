// LayerNorm (Ba et al., arXiv:1607.06450) and RMSNorm (Zhang and Sennrich, arXiv:1910.07467) with
// the residual sum before them, and their gradients. Each kernel reads and writes every activation
// once.
#include "kernels/params/layernorm.h"

#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

// v = x + r, rounded to T and stored in s, or x if r is null; returns the sum of v.
template <class T> Acc<T> residual_row(const T* x, const T* r, T* s, int64_t n, Acc<T>* v) {
    if (!r) return simd_sum<Acc<T>>(n, [=](int64_t j) { return v[j] = Acc<T>(x[j]); });
    return simd_sum<Acc<T>>(n, [=](int64_t j) {
        const T total = T(Acc<T>(x[j]) + Acc<T>(r[j]));
        s[j] = total;
        return v[j] = Acc<T>(total);
    });
}

// s, r and bias may be null. stats: (rows, 2), mean and 1/deviation. The variance is the mean of
// squared differences: E[x^2] - E[x]^2 would cancel.
void layernorm(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_layernorm_params>();
    const int64_t n = p.cols;
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        const T *x = call.input<T>(3), *r = call.input<T>(4);
        const T *weight = call.input<T>(5), *bias = call.input<T>(6);
        A* const v = scratch.get<A>(n);
        for (int64_t i = 0, at = 0; i < p.rows; ++i, at += n) {
            T *y = call.operand<T>(0) + at, *s = r ? call.operand<T>(1) + at : nullptr;
            const A sum = residual_row(x + at, r ? r + at : nullptr, s, n, v);
            const A mean = p.rms ? A(0) : sum / A(n);
            const A squares = simd_sum<A>(n, [=](int64_t j) {
                v[j] -= mean;
                return v[j] * v[j];
            });
            const A rstd = A(1) / std::sqrt(squares / A(n) + A(p.eps));
            call.operand<A>(2)[2 * i] = mean;
            call.operand<A>(2)[2 * i + 1] = rstd;
            if (bias)
                simd_for(n, [=](int64_t j) { y[j] = T(v[j] * rstd * A(weight[j]) + A(bias[j])); });
            else
                simd_for(n, [=](int64_t j) { y[j] = T(v[j] * rstd * A(weight[j])); });
        }
    });
}

// dx = rstd (g - mean(g) - h mean(g h)) + ds with h = (s - mean) rstd and g = dy w; RMSNorm has no
// mean(g). ds, the gradient of s from the residual path, and dbias may be null.
void layernorm_backward(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_layernorm_params>();
    const int64_t n = p.cols;
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        A *const dweight = call.operand<A>(1), *const dbias = call.operand<A>(2);
        const T *weight = call.input<T>(6), *residual = call.input<T>(7);
        if (p.first) row_fill(dweight, n, A(0));
        if (p.first && dbias) row_fill(dbias, n, A(0));
        A *const h = scratch.get<A>(2 * n), *const g = h + n;
        for (int64_t i = 0, at = 0; i < p.rows; ++i, at += n) {
            T* dx = call.operand<T>(0) + at;
            const T *dy = call.input<T>(3) + at, *s = call.input<T>(4) + at;
            const T* ds = residual ? residual + at : nullptr;
            const A mean = call.input<A>(5)[2 * i], rstd = call.input<A>(5)[2 * i + 1];
            A sum_g = 0, sum_gh = 0;
#pragma omp simd reduction(+ : sum_g, sum_gh)
            for (int64_t j = 0; j < n; ++j) {
                const A d = A(dy[j]);
                h[j] = (A(s[j]) - mean) * rstd;
                g[j] = d * A(weight[j]);
                sum_g += g[j];
                sum_gh += g[j] * h[j];
                dweight[j] += d * h[j];
            }
            if (dbias) simd_for(n, [=](int64_t j) { dbias[j] += A(dy[j]); });
            const A mean_g = p.rms ? A(0) : sum_g / A(n), mean_gh = sum_gh / A(n);
            const auto slope = [=](int64_t j) { return rstd * (g[j] - mean_g - h[j] * mean_gh); };
            if (ds)
                simd_for(n, [=](int64_t j) { dx[j] = T(slope(j) + A(ds[j])); });
            else
                simd_for(n, [=](int64_t j) { dx[j] = T(slope(j)); });
        }
    });
}

NN_IMPLEMENT(layernorm, layernorm_backward);

}  // namespace
}  // namespace nn::NN_TARGET
