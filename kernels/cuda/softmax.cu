// Softmax, log-softmax and logsumexp over the last axis, with gradients. A block computes a row;
// each loop reads it again, from the cache. Infinities and NaN behave as in PyTorch.
#include "kernels/cuda/rows.cuh"
#include "kernels/math/exp.h"
#include "kernels/params/rows.h"

namespace nn::NN_TARGET {
namespace {

// The largest element of this block's row x.
template <class T> __device__ Acc<T> row_max(const T* x, int64_t n, bool packed) {
    Acc<T> largest = -Acc<T>(INFINITY);
    each_number<Acc<T>>(x, blockIdx.x * n, n, packed,
                        [&](Acc<T> v, int64_t) { largest = Max()(largest, v); });
    return block_reduce(largest, Max());
}

// The sum of f(element) over this block's row x.
template <class T, class F> __device__ Acc<T> row_sum(const T* x, int64_t n, bool packed, F f) {
    Acc<T> sum = 0;
    each_number<Acc<T>>(x, blockIdx.x * n, n, packed, [&](Acc<T> v, int64_t) { sum += f(v); });
    return block_reduce(sum, Sum());
}

template <class T, bool logarithm>
__global__ void __launch_bounds__(256) softmax_kernel(T* y, const T* x, int64_t n, bool packed) {
    using A = Acc<T>;
    y += int64_t(blockIdx.x) * n, x += int64_t(blockIdx.x) * n;
    const A largest = row_max(x, n, packed);
    const A sum = row_sum(x, n, packed, [&](A v) { return exp_negative(v - largest); });
    const A factor = logarithm ? std::log(sum) : A(1) / sum;
    each_pack<T>(blockIdx.x * n, n, packed, [&](int64_t j, auto width) {
        A v[width];
        load_pack<width>(x + j, v);
        for (int e = 0; e < width; ++e)
            v[e] = logarithm ? (v[e] - largest) - factor : exp_negative(v[e] - largest) * factor;
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
    const auto shifted = [&](A v) { return exp_negative(v - largest); };
    const auto unshifted = [](A v) { return fast_exp(v); };
    const A result = largest - largest == A(0)  // neither infinite nor NaN
                         ? largest + std::log(row_sum(x, n, packed, shifted))
                         : std::log(row_sum(x, n, packed, unshifted));
    if (threadIdx.x == 0) y[blockIdx.x] = stored<T>(result);
}

// Launches a kernel for rows of tiles of T, which are all read or written in packs.
template <class T, class K, class... X>
void launch_rows(const KernelCall& call, K kernel, X*... tiles) {
    const auto& p = call.get<nn_rows_params>();
    const bool packed = all_aligned(tiles...);
    if (p.rows > 0)
        launch(call, rows_shape<T>(p.rows, p.cols, packed), kernel, tiles..., p.cols, packed);
}

template <bool logarithm> void forward(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) {
        launch_rows<T>(call, softmax_kernel<T, logarithm>, call.operand<T>(0), call.input<T>(1));
    });
}
void softmax(const KernelCall& call) { forward<false>(call); }
void log_softmax(const KernelCall& call) { forward<true>(call); }

template <bool logarithm> void backward(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) {
        launch_rows<T>(call, softmax_backward_kernel<T, logarithm>, call.operand<T>(0),
                       call.input<T>(1), call.input<T>(2));
    });
}
void softmax_backward(const KernelCall& call) { backward<false>(call); }
void log_softmax_backward(const KernelCall& call) { backward<true>(call); }

void logsumexp(const KernelCall& call) {
    const auto& p = call.get<nn_rows_params>();
    if (p.rows == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        const T* x = call.input<T>(1);
        const bool packed = aligned(x);
        launch(call, rows_shape<T>(p.rows, p.cols, packed), logsumexp_kernel<T>, call.operand<T>(0),
               x, p.cols, packed);
    });
}

NN_IMPLEMENT(softmax, softmax_backward, log_softmax, log_softmax_backward, logsumexp);

}  // namespace
}  // namespace nn::NN_TARGET
