// Optimizers with the update rules of torch.optim and gradient clipping, and the sums that the
// gradient norm needs. All are bound by memory: one pass over parameter, state and gradient.
#include "kernels/params/optimizer.h"

#include "kernels/cpu/random.h"
#include "kernels/cpu/row.h"
#include "kernels/math/updates.h"

namespace nn::NN_TARGET {
namespace {

// The factor for gradients, as in torch.nn.utils.clip_grad_norm_; NaN stays NaN.
double clip_factor(double clip, const double* norm) {
    const double factor = clip > 0 && norm ? clip / (*norm + 1e-6) : 1.0;
    return factor > 1 ? 1.0 : factor;
}

bool skips(int32_t skip_nonfinite, const double* norm) {
    return skip_nonfinite && norm && !std::isfinite(*norm);
}

// One step of AdamW (Loshchilov and Hutter, arXiv:1711.05101) or Adam. A float32 master of a bf16
// parameter is updated, then rounded. A bf16 parameter without a master may be rounded
// stochastically, so that steps smaller than its spacing count on average.
template <class T, class G> void adamw_tile(const KernelCall& call, const nn_adamw_params& p) {
    using A = Acc<T>;
    const A grad_scale = A(clip_factor(p.clip, call.input<double>(4)));
    const A beta1 = A(p.beta1), rest1 = A(1 - p.beta1), beta2 = A(p.beta2), rest2 = A(1 - p.beta2);
    const A decay = A(p.coupled ? 1 : 1 - p.lr * p.weight_decay), eps = A(p.eps);
    const A coupled_decay = A(p.coupled ? p.weight_decay : 0);
    const A step_size = A(p.lr / (1 - std::pow(p.beta1, p.step)));
    const A correction2 = A(std::sqrt(1 - std::pow(p.beta2, p.step)));
    T* param = call.operand<T>(0);
    A *m = call.operand<A>(1), *v = call.operand<A>(2);
    const G* grad = call.input<G>(3);
    // Updates m and v; returns the new value of parameter w.
    const auto updated = [=](A w, int64_t i) {
        A g = A(Acc<G>(grad[i])) * grad_scale;
        g = coupled_decay > 0 ? g + coupled_decay * w : g;
        const A mi = beta1 * m[i] + rest1 * g, vi = beta2 * v[i] + rest2 * g * g;
        m[i] = mi;
        v[i] = vi;
        return w * decay - step_size * mi / (std::sqrt(vi) / correction2 + eps);
    };
    float* master = call.operand<float>(5);
    if constexpr (std::is_same_v<T, bf16>) {
        if (master)
            return simd_for(p.n, [=](int64_t i) {
                const float w = updated(master[i], i);
                master[i] = w;
                param[i] = bf16(w);
            });
        const auto round_run = [=](const uint32_t* words, int64_t at, int64_t n, int64_t lead) {
            simd_for(n, [=](int64_t i) {
                const float w = updated(float(param[at + i]), at + i);
                param[at + i] = bf16(round_stochastically(w, words[lead + i]));
            });
        };
        if (p.stochastic) return each_run(p.noise, round_run);
    }
    simd_for(p.n, [=](int64_t i) { param[i] = T(updated(A(param[i]), i)); });
}

template <class T, class G> void sgd_tile(const KernelCall& call, const nn_sgd_params& p) {
    using A = Acc<T>;
    const A lr = A(p.lr), mu = A(p.momentum), decay = A(p.weight_decay);
    const A scale = A(clip_factor(p.clip, call.input<double>(3)));
    const A direct = p.nesterov ? A(1) : A(0), through = p.nesterov ? mu : A(1);
    T* param = call.operand<T>(0);
    A* momentum = call.operand<A>(1);
    const G* grad = call.input<G>(2);
    const auto slope = [=](A w, int64_t i) { return A(Acc<G>(grad[i])) * scale + decay * w; };
    if (!momentum)
        return simd_for(p.n, [=](int64_t i) {
            const A w = A(param[i]);
            param[i] = T(w - lr * slope(w, i));
        });
    if (p.first) row_fill(momentum, p.n, A(0));  // it may hold NaN
    simd_for(p.n, [=](int64_t i) {
        const A w = A(param[i]), g = slope(w, i), buffer = mu * momentum[i] + g;
        momentum[i] = buffer;
        param[i] = T(w - lr * (direct * g + through * buffer));
    });
}

void adamw(const KernelCall& call) {
    const auto& p = call.get<nn_adamw_params>();
    if (skips(p.skip_nonfinite, call.input<double>(4))) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_float(Dtype(p.grad_dtype), [&]<class G>(G*) { adamw_tile<T, G>(call, p); });
    });
}

void sgd(const KernelCall& call) {
    const auto& p = call.get<nn_sgd_params>();
    if (skips(p.skip_nonfinite, call.input<double>(3))) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_float(Dtype(p.grad_dtype), [&]<class G>(G*) { sgd_tile<T, G>(call, p); });
    });
}

// One step of a rule of kernels/math/updates.h. A float32 master of a bf16 parameter is updated,
// then rounded.
template <class T, class G, class Rule>
void update_tile(const KernelCall& call, const nn_update_params& p, const Rule& rule) {
    using A = Acc<T>;
    const A scale = A(clip_factor(p.clip, call.input<double>(3)));
    T* param = call.operand<T>(0);
    float* master = call.operand<float>(1);
    const G* grad = call.input<G>(2);
    A* state[Rule::states];
    find_states<Rule>(call, state);
    const auto updated = [=](A w, int64_t i) {
        A values[Rule::states];
        for (int k = 0; k < Rule::states; ++k) values[k] = state[k][i];
        w = rule(w, A(Acc<G>(grad[i])) * scale, values);
        for (int k = 0; k < Rule::states; ++k) state[k][i] = values[k];
        return w;
    };
    if constexpr (std::is_same_v<T, bf16>)
        if (master)
            return simd_for(p.n, [=](int64_t i) {
                const float w = updated(master[i], i);
                master[i] = w;
                param[i] = bf16(w);
            });
    simd_for(p.n, [=](int64_t i) { param[i] = T(updated(A(param[i]), i)); });
}

// visit(A, run) calls run(rule) with the rule computed in A.
template <class Visit> void update(const KernelCall& call, const nn_update_params& p, Visit visit) {
    if (skips(p.skip_nonfinite, call.input<double>(3))) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_float(Dtype(p.grad_dtype), [&]<class G>(G*) {
            visit(Acc<T>(), [&](const auto& rule) { update_tile<T, G>(call, p, rule); });
        });
    });
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

// In double: the square of a large float overflows.
template <class T> double sum_squares(const T* x, int64_t n) {
    double total = 0;
    for (int64_t start = 0; start < n; start += 4096) {
        total += simd_sum<double>(std::min<int64_t>(4096, n - start), [=](int64_t i) {
            const double value = double(Acc<T>(x[start + i]));
            return value * value;
        });
    }
    return total;
}

void sumsq(const KernelCall& call) {
    const auto& p = call.get<nn_sumsq_params>();
    auto* acc = call.operand<double>(0);
    visit_float(call.dtype, [&]<class T>(T*) {
        const double sum = sum_squares(call.input<T>(1), p.n);
        *acc = p.first ? sum : *acc + sum;
    });
}

// y = (first ? 0 : y) + the scalars given, then the square root if p.sqrt.
void sum_scalars(const KernelCall& call) {
    const auto& p = call.get<nn_sum_scalars_params>();
    double* y = call.operand<double>(0);
    double sum = p.first ? 0 : *y;
    for (int i = 1; i <= p.count; ++i) sum += *call.operand<double>(i);
    *y = p.sqrt ? std::sqrt(sum) : sum;
}

NN_IMPLEMENT(adagrad, adamw, lion, rmsprop, sgd, sumsq, sum_scalars);

}  // namespace
}  // namespace nn::NN_TARGET
