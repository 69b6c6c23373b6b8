// AdamW and SGD with the update rules of torch.optim and gradient clipping, and the sums that the
// gradient norm needs. All are bound by memory: one pass over parameter, state and gradient. Loads
// and stores look up the operand's dtype.
#include "kernels/cuda/random.cuh"
#include "kernels/params/optimizer.h"

namespace nn::NN_TARGET {
namespace {

constexpr int width = 8;  // elements per thread: 16 bytes of bf16, 32 of f32

// The factor for gradients, as in torch.nn.utils.clip_grad_norm_; NaN stays NaN.
__device__ inline double clip_factor(double clip, const double* norm) {
    const double factor = clip > 0 && norm ? clip / (*norm + 1e-6) : 1.0;
    return factor > 1 ? 1.0 : factor;
}
__device__ inline bool skips(bool skip_nonfinite, const double* norm) {
    return skip_nonfinite && norm && !(*norm - *norm == 0);
}

// --- AdamW (Loshchilov and Hutter, arXiv:1711.05101) ---

template <class A> struct AdamW {
    nn_adamw_params p;
    A beta1, rest1, beta2, rest2, decay, step_size, correction2, eps;
    bool packed;
    Dtype param_dtype;
};

// The update applies to master, the f32 copy, if there is one, and param is set from it.
// stochastic: param is bf16 without a master, rounded stochastically.
template <class A, bool stochastic>
__global__ void __launch_bounds__(threads)
    adamw_kernel(const AdamW<A> s, const Runs runs, void* param, A* m, A* v, const void* grad,
                 const double* norm, float* master) {
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
    if (i >= s.p.n || skips(s.p.skip_nonfinite, norm)) return;
    const int64_t left = s.p.n - i;
    const A scale = A(clip_factor(s.p.clip, norm));
    A w[width], g[width], mean[width], square[width];
    void* value = master ? static_cast<void*>(master) : param;
    const Dtype value_dtype = master ? Dtype::f32 : s.param_dtype;
    visit_computed<A>(value_dtype, [&]<class T>(T*) {
        load_run<width>(static_cast<const T*>(value) + i, left, s.packed, w);
    });
    visit_stored(Dtype(s.p.grad_dtype), [&]<class T>(T*) {
        load_run<width>(static_cast<const T*>(grad) + i, left, s.packed, g);
    });
    load_run<width>(m + i, left, s.packed, mean);
    load_run<width>(v + i, left, s.packed, square);
#pragma unroll
    for (int e = 0; e < width; ++e) {
        const A gradient = g[e] * scale;
        mean[e] = s.beta1 * mean[e] + s.rest1 * gradient;
        square[e] = s.beta2 * square[e] + s.rest2 * gradient * gradient;
        w[e] = w[e] * s.decay -
               s.step_size * mean[e] / (math::sqrt(square[e]) / s.correction2 + s.eps);
    }
    if constexpr (stochastic) {
        Draws<RandomWords> words(runs, i);
#pragma unroll
        for (int e = 0; e < width; ++e)
            if (i + e < s.p.n) w[e] = round_stochastically(w[e], words.next());
    }
    store_run<width>(m + i, left, s.packed, mean);
    store_run<width>(v + i, left, s.packed, square);
    const auto store = [&](void* to, Dtype dtype) {
        visit_computed<A>(dtype, [&]<class T>(T*) {
            store_run<width>(static_cast<T*>(to) + i, left, s.packed, w);
        });
    };
    store(value, value_dtype);
    if (master) store(param, s.param_dtype);
}

template <class A> void run_adamw(const KernelCall& call) {
    const auto& p = call.get<nn_adamw_params>();
    const double correction1 = 1 - std::pow(p.beta1, p.step);
    const double correction2 = 1 - std::pow(p.beta2, p.step);
    void* param = call.operand<void>(0);
    A *m = call.operand<A>(1), *v = call.operand<A>(2);
    const void* grad = call.input<void>(3);
    float* master = call.dtype == Dtype::bf16 ? call.operand<float>(5) : nullptr;
    const bool packed = all_aligned(param, m, v, grad, master);
    const AdamW<A> step{.p = p,
                        .beta1 = A(p.beta1),
                        .rest1 = A(1 - p.beta1),
                        .beta2 = A(p.beta2),
                        .rest2 = A(1 - p.beta2),
                        .decay = A(1 - p.lr * p.weight_decay),
                        .step_size = A(p.lr / correction1),
                        .correction2 = A(std::sqrt(correction2)),
                        .eps = A(p.eps),
                        .packed = packed,
                        .param_dtype = call.dtype};
    auto kernel = adamw_kernel<A, false>;
    if constexpr (std::is_same_v<A, float>)
        if (p.stochastic && call.dtype == Dtype::bf16 && !master) kernel = adamw_kernel<A, true>;
    launch_each(call, p.n, width, kernel, step, p.stochastic ? make_runs(p.noise) : Runs{}, param,
                m, v, grad, call.input<double>(4), master);
}

void adamw(const KernelCall& call) {
    if (call.get<nn_adamw_params>().n == 0) return;
    if (call.dtype == Dtype::f64) return run_adamw<double>(call);
    run_adamw<float>(call);
}

// --- SGD ---

template <class A> struct Sgd {
    nn_sgd_params p;
    A lr, mu, decay, direct, through;
    bool packed;
};

template <class T, class G>
constexpr int sgd_width = larger(lanes16<T>, lanes16<G>);  // elements per thread

template <class T, class G>
__global__ void __launch_bounds__(threads)
    sgd_kernel(const Sgd<Acc<T>> s, T* param, Acc<T>* momentum, const G* grad, const double* norm) {
    using A = Acc<T>;
    constexpr int width = sgd_width<T, G>;
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width, left = s.p.n - i;
    if (left <= 0 || skips(s.p.skip_nonfinite, norm)) return;
    const A scale = A(clip_factor(s.p.clip, norm));
    A w[width], g[width], buffer[width] = {};  // at first, momentum may hold NaN
    load_run<width>(param + i, left, s.packed, w);
    load_run<width>(grad + i, left, s.packed, g);
    if (momentum && !s.p.first) load_run<width>(momentum + i, left, s.packed, buffer);
#pragma unroll
    for (int e = 0; e < width; ++e) {
        const A gradient = g[e] * scale + s.decay * w[e];
        buffer[e] = s.mu * buffer[e] + gradient;
        w[e] -= s.lr * (momentum ? s.direct * gradient + s.through * buffer[e] : gradient);
    }
    if (momentum) store_run<width>(momentum + i, left, s.packed, buffer);
    store_run<width>(param + i, left, s.packed, w);
}

void sgd(const KernelCall& call) {
    const auto& p = call.get<nn_sgd_params>();
    if (p.n == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_float(Dtype(p.grad_dtype), [&]<class G>(G*) {
            using A = Acc<T>;
            T* param = call.operand<T>(0);
            A* momentum = call.operand<A>(1);
            const G* grad = call.input<G>(2);
            const Sgd<A> step{p,
                              A(p.lr),
                              A(p.momentum),
                              A(p.weight_decay),
                              p.nesterov ? A(1) : A(0),
                              p.nesterov ? A(p.momentum) : A(1),
                              all_aligned(param, momentum, grad)};
            launch_each(call, p.n, sgd_width<T, G>, sgd_kernel<T, G>, step, param, momentum, grad,
                        call.input<double>(3));
        });
    });
}

// --- sums ---

// block_sums[block] = sum of squares of every gridDim.x-th run of threads * width elements, in
// double: the square of a large float overflows.
template <class T>
__global__ void __launch_bounds__(threads)
    sumsq_kernel(const T* x, int64_t n, bool packed, double* block_sums) {
    const int64_t step = int64_t(gridDim.x) * threads * width;
    double sum = 0;
    for (int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width; i < n; i += step) {
        Acc<T> value[width];
        load_run<width>(x + i, n - i, packed, value);
#pragma unroll
        for (int e = 0; e < width; ++e) sum += double(value[e]) * double(value[e]);
    }
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
}

// acc = (first ? 0 : acc) + the blocks' sums, in an order that depends on their number only.
__global__ void add_parts_kernel(double* acc, const double* block_sums, int64_t n, bool first) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += threads) sum += block_sums[i];
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) *acc = first ? sum : *acc + sum;
}

void sumsq(const KernelCall& call) {
    const auto& p = call.get<nn_sumsq_params>();
    const int64_t blocks =
        larger<int64_t>(1, smaller<int64_t>(1024, ceil_div(p.n, threads * width)));
    double* block_sums = workspace<double>(call, blocks);
    if (!block_sums) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        const T* x = call.input<T>(1);
        launch(call, {dim3(unsigned(blocks)), threads}, sumsq_kernel<T>, x, p.n, aligned(x),
               block_sums);
    });
    launch(call, {dim3(1), threads}, add_parts_kernel, call.operand<double>(0), block_sums, blocks,
           p.first != 0);
}

struct Scalars {
    const double* at[14];
};
__global__ void sum_scalars_kernel(double* y, const Scalars scalars, nn_sum_scalars_params p) {
    double sum = p.first ? 0 : *y;
    for (int i = 0; i < p.count; ++i) sum += *scalars.at[i];
    *y = p.sqrt ? math::sqrt(sum) : sum;
}

// y = (first ? 0 : y) + the scalars given, then the square root if p.sqrt.
void sum_scalars(const KernelCall& call) {
    const auto& p = call.get<nn_sum_scalars_params>();
    Scalars scalars{};
    for (int i = 0; i < p.count; ++i) scalars.at[i] = call.input<double>(i + 1);
    launch(call, {dim3(1), 1}, sum_scalars_kernel, call.operand<double>(0), scalars, p);
}

NN_IMPLEMENT(adamw, sgd, sumsq, sum_scalars);

}  // namespace
}  // namespace nn::NN_TARGET
