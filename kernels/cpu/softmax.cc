// Softmax, log-softmax and logsumexp over the last axis, with gradients. Infinities and NaN behave
// as in PyTorch: a row of -inf has softmax NaN and logsumexp -inf.
#include "kernels/cpu/row.h"
#include "kernels/math/exp.h"
#include "kernels/params/rows.h"

namespace nn::NN_TARGET {
namespace {

// Calls f(type, i, offset, n) for every row i, of n elements from the offset on.
template <class F> void each_row(const KernelCall& call, F f) {
    const auto& p = call.get<nn_rows_params>();
    visit_float(call.dtype, [&]<class T>(T* type) {
        for (int64_t i = 0; i < p.rows; ++i) f(type, i, i * p.cols, p.cols);
    });
}

void softmax(const KernelCall& call) {
    static thread_local Scratch scratch;
    each_row(call, [&]<class T>(T*, int64_t, int64_t at, int64_t n) {
        T* y = call.operand<T>(0) + at;
        const T* x = call.input<T>(1) + at;
        Acc<T>* e = scratch.get<Acc<T>>(n);
        const Acc<T> scale = Acc<T>(1) / row_exp(x, n, row_max(x, n), e);
        simd_for(n, [=](int64_t j) { y[j] = T(e[j] * scale); });
    });
}

void softmax_backward(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t, int64_t at, int64_t n) {
        T* dx = call.operand<T>(0) + at;
        const T *dy = call.input<T>(1) + at, *y = call.input<T>(2) + at;
        const auto dot =
            simd_sum<Acc<T>>(n, [=](int64_t j) { return Acc<T>(dy[j]) * Acc<T>(y[j]); });
        simd_for(n, [=](int64_t j) { dx[j] = T(Acc<T>(y[j]) * (Acc<T>(dy[j]) - dot)); });
    });
}

void log_softmax(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t, int64_t at, int64_t n) {
        T* y = call.operand<T>(0) + at;
        const T* x = call.input<T>(1) + at;
        const Acc<T> largest = row_max(x, n), log_sum = std::log(row_exp_sum(x, n, largest));
        simd_for(n, [=](int64_t j) { y[j] = T((Acc<T>(x[j]) - largest) - log_sum); });
    });
}

void log_softmax_backward(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t, int64_t at, int64_t n) {
        T* dx = call.operand<T>(0) + at;
        const T *dy = call.input<T>(1) + at, *y = call.input<T>(2) + at;
        const auto sum = simd_sum<Acc<T>>(n, [=](int64_t j) { return Acc<T>(dy[j]); });
        simd_for(n,
                 [=](int64_t j) { dx[j] = T(Acc<T>(dy[j]) - exp_negative(Acc<T>(y[j])) * sum); });
    });
}

void logsumexp(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t i, int64_t at, int64_t n) {
        const T* x = call.input<T>(1) + at;
        const Acc<T> largest = row_max(x, n);
        Acc<T> sum = 0;  // if the largest is infinite: 0, infinity or NaN
        for (int64_t j = 0; std::isinf(largest) && j < n; ++j) sum += fast_exp(Acc<T>(x[j]));
        call.operand<T>(0)[i] =
            T(std::isinf(largest) ? std::log(sum) : largest + std::log(row_exp_sum(x, n, largest)));
    });
}

NN_IMPLEMENT(softmax, softmax_backward, log_softmax, log_softmax_backward, logsumexp);

}  // namespace
}  // namespace nn::NN_TARGET
