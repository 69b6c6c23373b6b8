// Running sums and products along the middle axis of (outer, n, inner). A block scans a row, a
// piece at a time; where inner > 1, a thread scans a column. Those of f32 are kept in double.
#include "kernels/cuda/cuda.cuh"
#include "kernels/params/scan.h"
#include "kernels/visit_any.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t items = 4;  // of a thread in a piece

enum Kind { sum, product };

template <Kind kind> struct Combine {
    template <class A> __device__ A operator()(A a, A b) const {
        // Integers wrap where they overflow.
        using U = std::conditional_t<std::is_same_v<A, int64_t>, uint64_t, A>;
        return kind == sum ? A(U(a) + U(b)) : A(U(a) * U(b));
    }
};
template <class T> using Total = std::conditional_t<std::is_same_v<T, float>, double, Acc<T>>;

template <Kind kind, class Y, class T>
__global__ void __launch_bounds__(threads) scan_rows(Y* y, const T* x, nn_scan_params p) {
    using A = Total<T>;
    constexpr A identity = kind == sum ? 0 : 1;
    __shared__ A upto[threads];  // of all items of the piece up to a thread's last
    const Combine<kind> combine;
    const int64_t row = int64_t(blockIdx.x) * p.n, piece = int64_t(blockDim.x) * items;
    const unsigned t = threadIdx.x;
    A before = identity;  // of the pieces before this one
    for (int64_t begin = 0; begin < p.n; begin += piece) {
        A own[items], all = identity;
        const int64_t first = begin + t * items;
        const auto place = [&](int64_t j) { return row + (p.reverse ? p.n - 1 - j : j); };
        for (int64_t e = 0; e < items; ++e) {
            const int64_t j = first + e;
            if (j < p.n) all = combine(all, A(number(x[place(j)])));
            own[e] = all;
        }
        upto[t] = all;
        __syncthreads();
        for (unsigned step = 1; step < blockDim.x; step *= 2) {
            const A lower = t >= step ? upto[t - step] : identity;
            __syncthreads();
            upto[t] = combine(lower, upto[t]);
            __syncthreads();
        }
        const A left = combine(before, t > 0 ? upto[t - 1] : identity);
        for (int64_t e = 0; e < items; ++e)
            if (first + e < p.n) y[place(first + e)] = stored<Y>(combine(left, own[e]));
        before = combine(before, upto[blockDim.x - 1]);
        __syncthreads();  // upto has been read
    }
}

template <Kind kind, class Y, class T>
__global__ void __launch_bounds__(threads) scan_columns(Y* y, const T* x, nn_scan_params p) {
    const int64_t column = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (column >= p.outer * p.inner) return;
    const int64_t step = p.reverse ? -p.inner : p.inner;
    int64_t at = column / p.inner * p.n * p.inner + column % p.inner;
    if (p.reverse) at += (p.n - 1) * p.inner;
    Total<T> all = kind == sum ? 0 : 1;
    for (int64_t j = 0; j < p.n; ++j, at += step) {
        all = Combine<kind>()(all, Total<T>(number(x[at])));
        y[at] = stored<Y>(all);
    }
}

template <Kind kind, class T> void scan_tile(const KernelCall& call) {
    using Y = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    const auto& p = call.get<nn_scan_params>();
    if (p.outer * p.n * p.inner == 0) return;
    Y* y = call.operand<Y>(0);
    const T* x = call.input<T>(1);
    if (p.inner == 1)
        launch(call, {blocks_for(p.outer, 1), threads_for(p.n, items)}, scan_rows<kind, Y, T>, y, x,
               p);
    else
        launch_each(call, p.outer * p.inner, 1, scan_columns<kind, Y, T>, y, x, p);
}

void scan(const KernelCall& call) {
    visit_any(call.dtype, [&]<class T>(T*) {
        if (call.get<nn_scan_params>().kind == sum)
            scan_tile<sum, T>(call);
        else
            scan_tile<product, T>(call);
    });
}

NN_IMPLEMENT(scan);

}  // namespace
}  // namespace nn::NN_TARGET
