// Softmax, log-softmax and logsumexp over the last axis, with gradients. Infinities and NaN behave
// as in PyTorch: a row of -inf has softmax NaN and logsumexp -inf.
#include "kernels/cpu/row.h"

namespace nn::NN_TARGET {
namespace {

template <class T> void softmax_row(T* y, const T* x, int64_t n, Acc<T>* e) {
    const Acc<T> scale = Acc<T>(1) / row_exp(x, n, row_max(x, n), e);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[j] = T(e[j] * scale);
}

template <class T> void softmax_backward_row(T* dx, const T* dy, const T* y, int64_t n) {
    Acc<T> dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < n; ++j) dot += Acc<T>(dy[j]) * Acc<T>(y[j]);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) dx[j] = T(Acc<T>(y[j]) * (Acc<T>(dy[j]) - dot));
}

template <class T> void log_softmax_row(T* y, const T* x, int64_t n) {
    const Acc<T> largest = row_max(x, n), log_sum = std::log(row_exp_sum(x, n, largest));
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[j] = T((Acc<T>(x[j]) - largest) - log_sum);
}

template <class T> void log_softmax_backward_row(T* dx, const T* dy, const T* y, int64_t n) {
    Acc<T> sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) sum += Acc<T>(dy[j]);
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) dx[j] = T(Acc<T>(dy[j]) - exp_negative(Acc<T>(y[j])) * sum);
}

template <class T> T logsumexp_row(const T* x, int64_t n) {
    const Acc<T> largest = row_max(x, n);
    if (!std::isinf(largest)) return T(largest + std::log(row_exp_sum(x, n, largest)));
    Acc<T> sum = 0;  // 0, infinity or NaN
    for (int64_t j = 0; j < n; ++j) sum += fast_exp(Acc<T>(x[j]));
    return T(std::log(sum));
}

// Calls f(row, type) for every row.
template <class F> void each_row(const KernelCall& call, F f) {
    visit_float(call.dtype, [&]<class T>(T* null) {
        for (int64_t i = 0; i < call.get<nn_rows_params>().rows; ++i) f(i, null);
    });
}

void softmax(const KernelCall& call) {
    static thread_local Scratch scratch;
    const int64_t n = call.get<nn_rows_params>().cols;
    each_row(call, [&]<class T>(int64_t i, T*) {
        softmax_row(call.operand<T>(0) + i * n, call.input<T>(1) + i * n, n,
                    scratch.get<Acc<T>>(n));
    });
}

void softmax_backward(const KernelCall& call) {
    const int64_t n = call.get<nn_rows_params>().cols;
    each_row(call, [&]<class T>(int64_t i, T*) {
        softmax_backward_row(call.operand<T>(0) + i * n, call.input<T>(1) + i * n,
                             call.input<T>(2) + i * n, n);
    });
}

void log_softmax(const KernelCall& call) {
    const int64_t n = call.get<nn_rows_params>().cols;
    each_row(call, [&]<class T>(int64_t i, T*) {
        log_softmax_row(call.operand<T>(0) + i * n, call.input<T>(1) + i * n, n);
    });
}

void log_softmax_backward(const KernelCall& call) {
    const int64_t n = call.get<nn_rows_params>().cols;
    each_row(call, [&]<class T>(int64_t i, T*) {
        log_softmax_backward_row(call.operand<T>(0) + i * n, call.input<T>(1) + i * n,
                                 call.input<T>(2) + i * n, n);
    });
}

void logsumexp(const KernelCall& call) {
    const int64_t n = call.get<nn_rows_params>().cols;
    each_row(call, [&]<class T>(int64_t i, T*) {
        call.operand<T>(0)[i] = logsumexp_row(call.input<T>(1) + i * n, n);
    });
}

NN_IMPLEMENT(softmax, softmax_backward, log_softmax, log_softmax_backward, logsumexp);

}  // namespace
}  // namespace nn::NN_TARGET
