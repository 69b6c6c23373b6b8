// The updates of one element by optimizers, for CPUs and GPUs. A: float or double. An update is a
// function of the parameter's value w, its scaled gradient g and its states, which it changes; it
// returns the new value.
#pragma once
#include "kernels/call.h"
#include "kernels/math/base.h"
#include "kernels/params/optimizer.h"

namespace nn::NN_TARGET {

// Chen et al. 2023, arXiv:2302.06675. State: the momentum.
template <class A> struct Lion {
    static constexpr int states = 1;
    A lr, decay, beta1, rest1, beta2, rest2;

    explicit Lion(const nn_lion_params& p)
        : lr(A(p.update.lr)),
          decay(A(1 - p.update.lr * p.update.weight_decay)),
          beta1(A(p.beta1)),
          rest1(A(1 - p.beta1)),
          beta2(A(p.beta2)),
          rest2(A(1 - p.beta2)) {}

    NN_HD A operator()(A w, A g, A* state) const {
        const A direction = beta1 * state[0] + rest1 * g;
        const A sign = direction > 0 ? A(1) : direction < 0 ? A(-1) : direction;  // of NaN: NaN
        state[0] = beta2 * state[0] + rest2 * g;
        return w * decay - lr * sign;
    }
};

// torch.optim.RMSprop. States: the mean square; if centered the mean; with a momentum its buffer.
template <class A, bool centered, bool has_momentum> struct RMSprop {
    static constexpr int states = 1 + centered + has_momentum;
    A lr, decay, alpha, rest, eps, momentum;

    explicit RMSprop(const nn_rmsprop_params& p)
        : lr(A(p.update.lr)),
          decay(A(p.update.weight_decay)),
          alpha(A(p.alpha)),
          rest(A(1 - p.alpha)),
          eps(A(p.eps)),
          momentum(A(p.momentum)) {}

    NN_HD A operator()(A w, A g, A* state) const {
        g += decay * w;
        A variance = state[0] = alpha * state[0] + rest * g * g;
        if constexpr (centered) {
            const A mean = state[1] = alpha * state[1] + rest * g;
            variance -= mean * mean;
            variance = variance < 0 ? A(0) : variance;  // by rounding
        }
        A change = g / (math::sqrt(variance) + eps);
        if constexpr (has_momentum)
            change = state[states - 1] = momentum * state[states - 1] + change;
        return w - lr * change;
    }
};

// Duchi et al. 2011, as torch.optim.Adagrad. State: the sum of squares.
template <class A> struct Adagrad {
    static constexpr int states = 1;
    A lr, decay, eps;

    explicit Adagrad(const nn_adagrad_params& p)
        : lr(A(p.update.lr / (1 + (p.step - 1) * p.lr_decay))),
          decay(A(p.update.weight_decay)),
          eps(A(p.eps)) {}

    NN_HD A operator()(A w, A g, A* state) const {
        g += decay * w;
        state[0] += g * g;
        return w - lr * g / (math::sqrt(state[0]) + eps);
    }
};

// The operands of their kernels: param, master, grad, norm, then the states.
constexpr int first_state = 4;

// state[k] = the state k of a call, without the absent ones.
template <class Rule, class A>
static inline void find_states(const KernelCall& call, A* (&state)[Rule::states]) {
    for (int k = 0, at = first_state; k < Rule::states; ++at)
        if (call.operand<A>(at)) state[k++] = call.operand<A>(at);
}

// run(RMSprop) of the states that the call has.
template <class A, class F> static inline void visit_rmsprop(const KernelCall& call, F run) {
    const auto& p = call.get<nn_rmsprop_params>();
    const bool centered = call.operand<A>(first_state + 1);
    const bool has_momentum = call.operand<A>(first_state + 2);
    if (centered && has_momentum) return run(RMSprop<A, true, true>(p));
    if (centered) return run(RMSprop<A, true, false>(p));
    if (has_momentum) return run(RMSprop<A, false, true>(p));
    run(RMSprop<A, false, false>(p));
}

}  // namespace nn::NN_TARGET
