// Cross-entropy of logits that come in vocabulary tiles, as in kernels/cpu/cross_entropy.cc.
// ce_stats reads a tile of logits once; ce_grad reads and writes it once.
#include "kernels/cuda/rows.cuh"
#include "kernels/math/exp.h"
#include "kernels/params/cross_entropy.h"

namespace nn::NN_TARGET {
namespace {

__global__ void __launch_bounds__(1024)
    ce_count_kernel(double* count, const void* targets, nn_cross_entropy_params p, Fault* fault) {
    int64_t counted = 0;
    for (int64_t i = threadIdx.x; i < p.rows; i += blockDim.x) {
        const int64_t target = load_index(targets, Dtype(p.targets_dtype), i);
        if (target == p.ignore_index) continue;
        ++counted;
        if (target < 0 || target >= p.vocab) report(fault, target);
    }
    counted = block_reduce(counted, Sum());
    if (threadIdx.x == 0) *count = (p.first ? 0 : *count) + double(counted);
}

void ce_count(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    launch(call, {dim3(1), threads_for(p.rows, 1, 1024)}, ce_count_kernel, call.operand<double>(0),
           call.input<void>(1), p,
           expect(call, "target %%lld is outside the vocabulary of %lld", (long long)p.vocab));
}

// e^(x - shift), where x and shift are maxima that may both be -infinity.
template <class A> __device__ A decay(A x, A shift) {
    return x == shift ? A(1) : exp_negative(x - shift);
}

// A block computes a row; each thread keeps a running maximum m and the sum l of e^(logit - m). NaN
// makes the sum NaN; while all logits are -infinity, it stays 0.
template <class T>
__global__ void __launch_bounds__(threads)
    ce_stats_kernel(Acc<T>* stats, const T* logits, const void* targets, nn_cross_entropy_params p,
                    bool packed) {
    using A = Acc<T>;
    constexpr A none = -A(INFINITY);
    const int64_t row = blockIdx.x;
    logits += row * p.ld, stats += row * 3;
    A m = none, l = 0;
    each_pack<T>(row * p.ld, p.cols, packed, [&](int64_t j, auto width) {
        A v[width], largest = m;
        load_pack<width>(logits + j, v);
        for (int e = 0; e < width; ++e) largest = Max()(largest, v[e]);
        if (largest > m) {
            l *= MathFor<T>::exp_negative(m - largest);
            m = largest;
        }
        const A shift = m == none ? A(0) : m;
        for (int e = 0; e < width; ++e) l += MathFor<T>::exp_negative(v[e] - shift);
    });
    const A all = block_reduce(m, Max());
    l = block_reduce(l * decay(m, all), Sum());
    if (threadIdx.x != 0) return;
    const A before = p.first ? none : stats[0], sum = p.first ? A(0) : stats[1];
    const A both = Max()(before, all);
    stats[0] = both;
    stats[1] = sum * decay(before, both) + l * decay(all, both);
    const int64_t column = load_index(targets, Dtype(p.targets_dtype), row) - p.col_start;
    if (column >= 0 && column < p.cols)
        stats[2] = number(logits[column]);
    else if (p.first)
        stats[2] = 0;
}

void ce_stats(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    if (p.rows == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        const T* logits = call.input<T>(1);
        const bool packed = aligned(logits);
        launch(call, rows_shape<T>(p.rows, p.cols, packed), ce_stats_kernel<T>,
               call.operand<Acc<T>>(0), logits, call.input<void>(2), p, packed);
    });
}

template <class A>
__global__ void __launch_bounds__(1024)
    ce_loss_kernel(double* loss, const A* stats, const void* targets, nn_cross_entropy_params p) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < p.rows; i += blockDim.x) {
        const A* stat = stats + 3 * i;
        if (load_index(targets, Dtype(p.targets_dtype), i) != p.ignore_index)
            sum += double(stat[0]) + std::log(double(stat[1])) - double(stat[2]);
    }
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) *loss = (p.first ? 0 : *loss) + sum;
}

void ce_loss(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    const Shape shape{dim3(1), threads_for(p.rows, 1, 1024)};
    visit_float(call.dtype, [&]<class T>(T*) {
        launch(call, shape, ce_loss_kernel<Acc<T>>, call.operand<double>(0), call.input<Acc<T>>(1),
               call.input<void>(2), p);
    });
}

// A block per row: d = factor (softmax - onehot), or 0 if the row does not count. d may be logits.
template <class T>
__global__ void __launch_bounds__(threads)
    ce_grad_kernel(T* d, const T* logits, const Acc<T>* stats, const void* targets,
                   const double* divisor, nn_cross_entropy_params p, bool packed) {
    using A = Acc<T>;
    const int64_t row = blockIdx.x, target = load_index(targets, Dtype(p.targets_dtype), row);
    const int64_t column = target - p.col_start;
    const bool counts = target != p.ignore_index;
    const A factor = A(p.scale / (*divisor > nn_least_divisor ? *divisor : nn_least_divisor));
    const A largest = stats[3 * row], weight = factor / stats[3 * row + 1];
    d += row * p.ld, logits += row * p.ld;
    each_pack<T>(row * p.ld, p.cols, packed, [&](int64_t j, auto width) {
        A v[width] = {};
        if (counts) {
            load_pack<width>(logits + j, v);
            for (int e = 0; e < width; ++e)
                v[e] = weight * MathFor<T>::exp_negative(v[e] - largest) -
                       (j + e == column ? factor : A(0));
        }
        store_pack<width>(d + j, v);
    });
}

void ce_grad(const KernelCall& call) {
    const auto& p = call.get<nn_cross_entropy_params>();
    if (p.rows == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        T* d = call.operand<T>(0);
        const T* logits = call.input<T>(1);
        const bool packed = all_aligned(d, logits);
        launch(call, rows_shape<T>(p.rows, p.cols, packed), ce_grad_kernel<T>, d, logits,
               call.input<Acc<T>>(2), call.input<void>(3), call.input<double>(4), p, packed);
    });
}

NN_IMPLEMENT(ce_count, ce_stats, ce_loss, ce_grad);

}  // namespace
}  // namespace nn::NN_TARGET
