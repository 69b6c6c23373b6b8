// AdamW and SGD with the update rules of torch.optim and gradient clipping, and the sums that the
// gradient norm needs. All are bound by memory: one pass over parameter, state and gradient.
#include "kernels/cpu/random.h"
#include "kernels/cpu/row.h"

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

// The coefficients of one AdamW step (Loshchilov and Hutter, arXiv:1711.05101).
template <class A> struct AdamW {
    A grad_scale, beta1, rest1, beta2, rest2, decay, step_size, correction2, eps;
};
template <class A> AdamW<A> adamw_step(const nn_adamw_params& p, double clip) {
    const double correction1 = 1 - std::pow(p.beta1, p.step);
    const double correction2 = 1 - std::pow(p.beta2, p.step);
    return {.grad_scale = A(clip),
            .beta1 = A(p.beta1),
            .rest1 = A(1 - p.beta1),
            .beta2 = A(p.beta2),
            .rest2 = A(1 - p.beta2),
            .decay = A(1 - p.lr * p.weight_decay),
            .step_size = A(p.lr / correction1),
            .correction2 = A(std::sqrt(correction2)),
            .eps = A(p.eps)};
}

// Updates m and v; returns the parameter's new value.
template <class A> A adamw_element(const AdamW<A>& s, A w, A g, A& m, A& v) {
    g *= s.grad_scale;
    const A mi = s.beta1 * m + s.rest1 * g;
    const A vi = s.beta2 * v + s.rest2 * g * g;
    m = mi;
    v = vi;
    return w * s.decay - s.step_size * mi / (std::sqrt(vi) / s.correction2 + s.eps);
}

// Updates `value`: the parameter, or its float32 master, from which `rounded` is then set.
template <class V, class T, class A, class G>
void adamw_loop(const AdamW<A>& s, int64_t n, V* value, T* rounded, A* m, A* v, const G* grad) {
    constexpr bool has_master = !std::is_same_v<V, T>;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        const A w = adamw_element(s, A(Acc<V>(value[i])), A(Acc<G>(grad[i])), m[i], v[i]);
        value[i] = V(w);
        if constexpr (has_master) rounded[i] = T(w);
    }
}

// A bf16 parameter without a master: rounded stochastically, so that steps smaller than its spacing
// count on average.
template <class G>
void adamw_stochastic(const AdamW<float>& s, const nn_random_params& noise, bf16* param, float* m,
                      float* v, const G* grad) {
    each_run(noise, [&](const uint32_t* words, int64_t offset, int64_t n, int64_t lead) {
        bf16* to = param + offset;
        float *mean = m + offset, *square = v + offset;
        const G* g = grad + offset;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
            const float w = adamw_element(s, float(to[i]), float(Acc<G>(g[i])), mean[i], square[i]);
            to[i] = bf16(round_stochastically(w, words[lead + i]));
        }
    });
}

void adamw(const KernelCall& call) {
    const auto& p = call.get<nn_adamw_params>();
    const auto* norm = call.input<double>(4);
    if (skips(p.skip_nonfinite, norm)) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_float(Dtype(p.grad_dtype), [&]<class G>(G*) {
            using A = Acc<T>;
            const AdamW<A> step = adamw_step<A>(p, clip_factor(p.clip, norm));
            T* param = call.operand<T>(0);
            A *m = call.operand<A>(1), *v = call.operand<A>(2);
            const G* grad = call.input<G>(3);
            float* master = call.operand<float>(5);
            if constexpr (std::is_same_v<T, bf16>) {
                if (master) return adamw_loop(step, p.n, master, param, m, v, grad);
                if (p.stochastic) return adamw_stochastic(step, p.noise, param, m, v, grad);
            }
            adamw_loop(step, p.n, param, param, m, v, grad);
        });
    });
}

template <class T, class G>
void sgd_loop(const nn_sgd_params& p, double clip, T* param, Acc<T>* momentum, const G* grad) {
    using A = Acc<T>;
    const A lr = A(p.lr), mu = A(p.momentum), decay = A(p.weight_decay), scale = A(clip);
    const A direct = p.nesterov ? A(1) : A(0), through = p.nesterov ? mu : A(1);
    if (!momentum) {
#pragma omp simd
        for (int64_t i = 0; i < p.n; ++i) {
            const A w = A(param[i]), g = A(Acc<G>(grad[i])) * scale + decay * w;
            param[i] = T(w - lr * g);
        }
        return;
    }
    if (p.first) row_fill(momentum, p.n, A(0));  // it may hold NaN
#pragma omp simd
    for (int64_t i = 0; i < p.n; ++i) {
        const A w = A(param[i]), g = A(Acc<G>(grad[i])) * scale + decay * w;
        const A buffer = mu * momentum[i] + g;
        momentum[i] = buffer;
        param[i] = T(w - lr * (direct * g + through * buffer));
    }
}

void sgd(const KernelCall& call) {
    const auto& p = call.get<nn_sgd_params>();
    const auto* norm = call.input<double>(3);
    if (skips(p.skip_nonfinite, norm)) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        visit_float(Dtype(p.grad_dtype), [&]<class G>(G*) {
            sgd_loop(p, clip_factor(p.clip, norm), call.operand<T>(0), call.operand<Acc<T>>(1),
                     call.input<G>(2));
        });
    });
}

// In double: the square of a large float overflows.
template <class T> double sum_squares(const T* x, int64_t n) {
    double total = 0;
    for (int64_t start = 0; start < n; start += 4096) {
        const int64_t end = start + 4096 < n ? start + 4096 : n;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = start; i < end; ++i) {
            const double value = double(Acc<T>(x[i]));
            sum += value * value;
        }
        total += sum;
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

NN_IMPLEMENT(adamw, sgd, sumsq, sum_scalars);

}  // namespace
}  // namespace nn::NN_TARGET
