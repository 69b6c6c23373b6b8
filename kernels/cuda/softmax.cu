// Softmax, log-softmax and logsumexp over the last axis, with gradients. A block computes a row;
// each loop reads it again, from the cache. Infinities and NaN behave as in PyTorch.
#include "kernels/cuda/rows.cuh"

namespace nn::NN_TARGET {
namespace {

template <class T> __device__ Acc<T> row_max(const T* x, int64_t n, bool packed) {
    Acc<T> largest = -Acc<T>(INFINITY);
    each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
        Acc<T> v[width];
        load_pack<width>(x + j, v);
        for (int e = 0; e < width; ++e) largest = Max()(largest, v[e]);
    });
    return block_reduce(largest, Max());
}

template <class T> __device__ Acc<T> row_exp_sum(const T* x, int64_t n, bool packed, Acc<T> shift) {
    Acc<T> sum = 0;
    each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
        Acc<T> v[width];
        load_pack<width>(x + j, v);
        for (int e = 0; e < width; ++e) sum += exp_negative(v[e] - shift);
    });
    return block_reduce(sum, Sum());
}

template <class T>
__global__ void __launch_bounds__(256) softmax_kernel(T* y, const T* x, int64_t n, bool packed) {
    using A = Acc<T>;
    y += int64_t(blockIdx.x) * n, x += int64_t(blockIdx.x) * n;
    const A largest = row_max(x, n, packed);
    const A scale = A(1) / row_exp_sum(x, n, packed, largest);
    each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
        A v[width];
        load_pack<width>(x + j, v);
        for (int e = 0; e < width; ++e) v[e] = exp_negative(v[e] - largest) * scale;
        store_pack<width>(y + j, v);
    });
}

template <class T>
__global__ void __launch_bounds__(256)
    log_softmax_kernel(T* y, const T* x, int64_t n, bool packed) {
    using A = Acc<T>;
    y += int64_t(blockIdx.x) * n, x += int64_t(blockIdx.x) * n;
    const A largest = row_max(x, n, packed);
    const A log_sum = std::log(row_exp_sum(x, n, packed, largest));
    each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
        A v[width];
        load_pack<width>(x + j, v);
        for (int e = 0; e < width; ++e) v[e] = (v[e] - largest) - log_sum;
        store_pack<width>(y + j, v);
    });
}

// logarithm: of log_softmax, dx = dy - e^y sum(dy); else of softmax, dx = y (dy - sum(dy y)).
template <class T, bool logarithm>
__global__ void __launch_bounds__(256)
    softmax_backward_kernel(T* dx, const T* dy, const T* y, int64_t n, bool packed) {
    using A = Acc<T>;
    const int64_t row = int64_t(blockIdx.x) * n;
    dx += row, dy += row, y += row;
    A sum = 0;
    each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
        A d[width], v[width];
        load_pack<width>(dy + j, d);
        load_pack<width>(y + j, v);
        for (int e = 0; e < width; ++e) sum += logarithm ? d[e] : d[e] * v[e];
    });
    sum = block_reduce(sum, Sum());
    each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
        A d[width], v[width];
        load_pack<width>(dy + j, d);
        load_pack<width>(y + j, v);
        for (int e = 0; e < width; ++e)
            d[e] = logarithm ? d[e] - exp_negative(v[e]) * sum : v[e] * (d[e] - sum);
        store_pack<width>(dx + j, d);
    });
}

template <class T>
__global__ void __launch_bounds__(256) logsumexp_kernel(T* y, const T* x, int64_t n, bool packed) {
    using A = Acc<T>;
    x += int64_t(blockIdx.x) * n;
    const A largest = row_max(x, n, packed);
    A result;
    if (largest - largest == A(0)) {
        result = largest + std::log(row_exp_sum(x, n, packed, largest));
    } else {  // 0, infinity or NaN
        A sum = 0;
        each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
            A v[width];
            load_pack<width>(x + j, v);
            for (int e = 0; e < width; ++e) sum += fast_exp(v[e]);
        });
        result = std::log(block_reduce(sum, Sum()));
    }
    if (threadIdx.x == 0) y[blockIdx.x] = stored<T>(result);
}

// Calls f(type, rows, cols) if there are rows.
template <class F> void each_row(const KernelCall& call, F f) {
    const auto& p = call.get<nn_rows_params>();
    if (p.rows == 0) return;
    visit_float(call.dtype, [&]<class T>(T* null) { f(null, p.rows, p.cols); });
}

void softmax(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t rows, int64_t n) {
        T* y = call.operand<T>(0);
        const T* x = call.input<T>(1);
        const bool packed = aligned(y) && aligned(x);
        launch(call, rows_shape<T>(rows, n, packed), softmax_kernel<T>, y, x, n, packed);
    });
}

void log_softmax(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t rows, int64_t n) {
        T* y = call.operand<T>(0);
        const T* x = call.input<T>(1);
        const bool packed = aligned(y) && aligned(x);
        launch(call, rows_shape<T>(rows, n, packed), log_softmax_kernel<T>, y, x, n, packed);
    });
}

template <bool logarithm> void run_backward(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t rows, int64_t n) {
        T* dx = call.operand<T>(0);
        const T *dy = call.input<T>(1), *y = call.input<T>(2);
        const bool packed = aligned(dx) && aligned(dy) && aligned(y);
        launch(call, rows_shape<T>(rows, n, packed), softmax_backward_kernel<T, logarithm>, dx, dy,
               y, n, packed);
    });
}
void softmax_backward(const KernelCall& call) { run_backward<false>(call); }
void log_softmax_backward(const KernelCall& call) { run_backward<true>(call); }

void logsumexp(const KernelCall& call) {
    each_row(call, [&]<class T>(T*, int64_t rows, int64_t n) {
        const T* x = call.input<T>(1);
        const bool packed = aligned(x);
        launch(call, rows_shape<T>(rows, n, packed), logsumexp_kernel<T>, call.operand<T>(0), x, n,
               packed);
    });
}

NN_IMPLEMENT(softmax, softmax_backward, log_softmax, log_softmax_backward, logsumexp);

}  // namespace
}  // namespace nn::NN_TARGET
