// Optimizers with the update rules of torch.optim and gradient clipping, and the sums that the
// gradient norm needs. All are bound by memory: one pass over parameter, state and gradient. Loads
// and stores look up the operand's dtype.
#include "kernels/cuda/random.cuh"
#include "kernels/math/updates.h"

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

// --- AdamW (Loshchilov and Hutter, arXiv:1711.05101) and Adam ---

// The update of one tensor.
template <class A> struct AdamW {
    void* param;
    A *m, *v;
    const void* grad;
    const double* norm;
    float* master;
    int64_t n;
    double clip;
    A beta1, rest1, beta2, rest2, decay, coupled_decay, step_size, correction2, eps;
    bool skip_nonfinite, packed;
    Dtype param_dtype, grad_dtype;
};

// Items of a launch, and the first block of each.
template <class Item, int size> struct Batch {
    static constexpr int most = size;
    Item items[size];
    int64_t begins[size];
    int count = 0;
    int64_t blocks = 0;
    void add(const Item& item, int64_t item_blocks) {
        items[count] = item, begins[count++] = blocks;
        blocks += item_blocks;
    }
    __device__ int item_of_block() const {
        int i = count - 1;
        while (int64_t(blockIdx.x) < begins[i]) --i;
        return i;
    }
};
// A launch has at most 4 KB of parameters.
template <class A> using AdamWBatch = Batch<AdamW<A>, std::is_same_v<A, float> ? 24 : 1>;

// The update applies to master, the f32 copy, if there is one, and param is set from it.
// stochastic: param is bf16 without a master, rounded stochastically.
template <class A, bool stochastic>
__global__ void __launch_bounds__(threads)
    adamw_kernel(const __grid_constant__ AdamWBatch<A> batch, const Runs runs) {
    const int item = batch.item_of_block();
    const AdamW<A>& s = batch.items[item];
    const int64_t i = ((blockIdx.x - batch.begins[item]) * threads + threadIdx.x) * width;
    if (i >= s.n || skips(s.skip_nonfinite, s.norm)) return;
    const int64_t left = s.n - i;
    const A scale = A(clip_factor(s.clip, s.norm));
    A w[width], g[width], mean[width], square[width];
    void* value = s.master ? static_cast<void*>(s.master) : s.param;
    const Dtype value_dtype = s.master ? Dtype::f32 : s.param_dtype;
    visit_computed<A>(value_dtype, [&]<class T>(T*) {
        load_run<width>(static_cast<const T*>(value) + i, left, s.packed, w);
    });
    visit_stored(s.grad_dtype, [&]<class T>(T*) {
        load_run<width>(static_cast<const T*>(s.grad) + i, left, s.packed, g);
    });
    load_run<width>(s.m + i, left, s.packed, mean);
    load_run<width>(s.v + i, left, s.packed, square);
#pragma unroll
    for (int e = 0; e < width; ++e) {
        A gradient = g[e] * scale;
        if (s.coupled_decay > 0) gradient += s.coupled_decay * w[e];
        mean[e] = s.beta1 * mean[e] + s.rest1 * gradient;
        square[e] = s.beta2 * square[e] + s.rest2 * gradient * gradient;
        w[e] = w[e] * s.decay -
               s.step_size * mean[e] / (math::sqrt(square[e]) / s.correction2 + s.eps);
    }
    if constexpr (stochastic) {
        Draws<RandomWords> words(runs, i);
#pragma unroll
        for (int e = 0; e < width; ++e)
            if (i + e < s.n) w[e] = round_stochastically(w[e], words.next());
    }
    store_run<width>(s.m + i, left, s.packed, mean);
    store_run<width>(s.v + i, left, s.packed, square);
    const auto store = [&](void* to, Dtype dtype) {
        visit_computed<A>(dtype, [&]<class T>(T*) {
            store_run<width>(static_cast<T*>(to) + i, left, s.packed, w);
        });
    };
    store(value, value_dtype);
    if (s.master) store(s.param, s.param_dtype);
}

template <class A> AdamW<A> adamw_of(const KernelCall& call) {
    const auto& p = call.get<nn_adamw_params>();
    const double correction1 = 1 - std::pow(p.beta1, p.step);
    const double correction2 = 1 - std::pow(p.beta2, p.step);
    AdamW<A> s{.param = call.operand<void>(0),
               .m = call.operand<A>(1),
               .v = call.operand<A>(2),
               .grad = call.input<void>(3),
               .norm = call.input<double>(4),
               .master = call.dtype == Dtype::bf16 ? call.operand<float>(5) : nullptr,
               .n = p.n,
               .clip = p.clip,
               .beta1 = A(p.beta1),
               .rest1 = A(1 - p.beta1),
               .beta2 = A(p.beta2),
               .rest2 = A(1 - p.beta2),
               .decay = A(p.coupled ? 1 : 1 - p.lr * p.weight_decay),
               .coupled_decay = A(p.coupled ? p.weight_decay : 0),
               .step_size = A(p.lr / correction1),
               .correction2 = A(std::sqrt(correction2)),
               .eps = A(p.eps),
               .skip_nonfinite = p.skip_nonfinite != 0,
               .packed = false,
               .param_dtype = call.dtype,
               .grad_dtype = Dtype(p.grad_dtype)};
    s.packed = all_aligned(s.param, s.m, s.v, s.grad, s.master);
    return s;
}

bool is_stochastic(const KernelCall& call) {
    return call.get<nn_adamw_params>().stochastic && call.dtype == Dtype::bf16 &&
           !call.operand<float>(5);
}

template <class A> void run_adamw(const KernelCall* calls, int count) {
    for (int i = 0; i < count;) {
        AdamWBatch<A> batch;
        const KernelCall& first = calls[i];
        const bool stochastic = is_stochastic(first);  // with noise of its own
        do {
            const AdamW<A> s = adamw_of<A>(calls[i]);
            if (s.n > 0) batch.add(s, ceil_div(s.n, threads * width));
            ++i;
        } while (i < count && batch.count < batch.most && !stochastic && !is_stochastic(calls[i]));
        if (batch.count == 0) continue;
        auto kernel = adamw_kernel<A, false>;
        if constexpr (std::is_same_v<A, float>)
            if (stochastic) kernel = adamw_kernel<A, true>;
        launch(first, {blocks_for(batch.blocks, 1), threads}, kernel, batch,
               stochastic ? make_runs(first.get<nn_adamw_params>().noise) : Runs{});
    }
}

void many_adamw(const KernelCall* calls, int count) {
    if (calls->dtype == Dtype::f64) return run_adamw<double>(calls, count);
    run_adamw<float>(calls, count);
}
void adamw(const KernelCall& call) { many_adamw(&call, 1); }

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

// --- rules of kernels/math/updates.h ---

template <class A, class Rule> struct Update {
    Rule rule;
    nn_update_params p;
    void* param;
    float* master;
    const void* grad;
    const double* norm;
    A* state[Rule::states];
    Dtype param_dtype;
    bool packed;
};

// The update applies to master, the f32 copy, if there is one, and param is set from it.
template <class A, class Rule>
__global__ void __launch_bounds__(threads)
    update_kernel(const __grid_constant__ Update<A, Rule> s) {
    const int64_t i = (int64_t(blockIdx.x) * threads + threadIdx.x) * width, left = s.p.n - i;
    if (left <= 0 || skips(s.p.skip_nonfinite, s.norm)) return;
    const A scale = A(clip_factor(s.p.clip, s.norm));
    A w[width], g[width], values[Rule::states][width];
    void* value = s.master ? static_cast<void*>(s.master) : s.param;
    const Dtype value_dtype = s.master ? Dtype::f32 : s.param_dtype;
    visit_computed<A>(value_dtype, [&]<class T>(T*) {
        load_run<width>(static_cast<const T*>(value) + i, left, s.packed, w);
    });
    visit_stored(Dtype(s.p.grad_dtype), [&]<class T>(T*) {
        load_run<width>(static_cast<const T*>(s.grad) + i, left, s.packed, g);
    });
#pragma unroll
    for (int k = 0; k < Rule::states; ++k)
        load_run<width>(s.state[k] + i, left, s.packed, values[k]);
#pragma unroll
    for (int e = 0; e < width; ++e) {
        A state[Rule::states];
        for (int k = 0; k < Rule::states; ++k) state[k] = values[k][e];
        w[e] = s.rule(w[e], g[e] * scale, state);
        for (int k = 0; k < Rule::states; ++k) values[k][e] = state[k];
    }
#pragma unroll
    for (int k = 0; k < Rule::states; ++k)
        store_run<width>(s.state[k] + i, left, s.packed, values[k]);
    const auto store = [&](void* to, Dtype dtype) {
        visit_computed<A>(dtype, [&]<class T>(T*) {
            store_run<width>(static_cast<T*>(to) + i, left, s.packed, w);
        });
    };
    store(value, value_dtype);
    if (s.master) store(s.param, s.param_dtype);
}

// visit(A, run) calls run(rule) with the rule computed in A.
template <class Visit> void update(const KernelCall& call, const nn_update_params& p, Visit visit) {
    if (p.n == 0) return;
    const auto run_in = [&]<class A>(A zero) {
        visit(zero, [&]<class Rule>(const Rule& rule) {
            Update<A, Rule> s{rule,
                              p,
                              call.operand<void>(0),
                              call.dtype == Dtype::bf16 ? call.operand<float>(1) : nullptr,
                              call.input<void>(2),
                              call.input<double>(3),
                              {},
                              call.dtype,
                              false};
            find_states<Rule>(call, s.state);
            s.packed = all_aligned(s.param, s.master, s.grad);
            for (const A* state : s.state) s.packed = s.packed && aligned(state);
            launch_each(call, p.n, width, update_kernel<A, Rule>, s);
        });
    };
    if (call.dtype == Dtype::f64) return run_in(double());
    run_in(float());
}

void lion(const KernelCall& call) {
    const auto& p = call.get<nn_lion_params>();
    update(call, p.update, [&]<class A>(A, auto run) { run(Lion<A>(p)); });
}

void adagrad(const KernelCall& call) {
    const auto& p = call.get<nn_adagrad_params>();
    update(call, p.update, [&]<class A>(A, auto run) { run(Adagrad<A>(p)); });
}

void rmsprop(const KernelCall& call) {
    update(call, call.get<nn_rmsprop_params>().update,
           [&]<class A>(A, auto run) { visit_rmsprop<A>(call, run); });
}

// --- sums ---

template <class T> struct Squares {
    double* acc;
    const T* x;
    int64_t n, blocks;
    bool packed, first;
};
template <class T> using SquaresBatch = Batch<Squares<T>, 48>;

// block_sums[block] = the sum of squares of some of the item's runs of threads * width elements, as
// many runs apart as the item has blocks; in double, because the square of a large float overflows.
template <class T>
__global__ void __launch_bounds__(threads)
    sumsq_kernel(const __grid_constant__ SquaresBatch<T> batch, double* block_sums) {
    const int item = batch.item_of_block();
    const Squares<T>& s = batch.items[item];
    const int64_t step = s.blocks * threads * width;
    double sum = 0;
    for (int64_t i = ((blockIdx.x - batch.begins[item]) * threads + threadIdx.x) * width; i < s.n;
         i += step) {
        Acc<T> value[width];
        load_run<width>(s.x + i, s.n - i, s.packed, value);
#pragma unroll
        for (int e = 0; e < width; ++e) sum += double(value[e]) * double(value[e]);
    }
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
}

// acc = (first ? 0 : acc) + the sums of an item's blocks, in an order that depends on their number
// only. A block for each item.
template <class T>
__global__ void __launch_bounds__(threads)
    add_parts_kernel(const __grid_constant__ SquaresBatch<T> batch, const double* block_sums) {
    const Squares<T>& s = batch.items[blockIdx.x];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < s.blocks; i += threads)
        sum += block_sums[batch.begins[blockIdx.x] + i];
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) *s.acc = s.first ? sum : *s.acc + sum;
}

template <class T> void run_sumsq(const KernelCall* calls, int count) {
    constexpr int64_t most_blocks = 1024;
    for (int i = 0; i < count;) {
        SquaresBatch<T> batch;
        const KernelCall& first = calls[i];
        for (; i < count && batch.count < batch.most; ++i) {
            const auto& p = calls[i].get<nn_sumsq_params>();
            const T* x = calls[i].input<T>(1);
            const int64_t blocks =
                larger<int64_t>(1, smaller(most_blocks, ceil_div(p.n, threads * width)));
            batch.add({calls[i].operand<double>(0), x, p.n, blocks, aligned(x), p.first != 0},
                      blocks);
        }
        double* const block_sums = workspace<double>(first, batch.blocks);
        if (!block_sums) return;
        launch(first, {blocks_for(batch.blocks, 1), threads}, sumsq_kernel<T>, batch, block_sums);
        launch(first, {dim3(unsigned(batch.count)), threads}, add_parts_kernel<T>, batch,
               block_sums);
    }
}

void many_sumsq(const KernelCall* calls, int count) {
    visit_float(calls->dtype, [&]<class T>(T*) { run_sumsq<T>(calls, count); });
}
void sumsq(const KernelCall& call) { many_sumsq(&call, 1); }

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

NN_IMPLEMENT(adagrad, adamw, lion, rmsprop, sgd, sumsq, sum_scalars);
NN_IMPLEMENT_MANY(many_adamw, many_sumsq);

}  // namespace
}  // namespace nn::NN_TARGET
