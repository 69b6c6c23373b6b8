// The parameters of optimizers and of the norm of gradients (kernels/params.h).
#pragma once
#include <stdint.h>

#include "kernels/params/random.h"

// <cdef>
// Optimizers. clip: the largest global gradient norm, 0 for none; skip_nonfinite: change nothing if
// the norm is not finite. AdamW as in PyTorch (decoupled weight decay, bias correction by step = 1,
// 2, ...), or as its Adam if coupled: the decay is added to the gradient. stochastic: a bf16
// parameter without a master is rounded stochastically, with the random numbers of `noise` (a and b
// are not used).
typedef struct {
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, step, clip;
    int32_t skip_nonfinite, grad_dtype, stochastic, coupled;
    nn_random_params noise;
} nn_adamw_params;

typedef struct {
    int64_t n;
    double lr, momentum, weight_decay, clip;
    int32_t nesterov, first, skip_nonfinite, grad_dtype;
} nn_sgd_params;

// What the updates of kernels/math/updates.h share.
typedef struct {
    int64_t n;
    double lr, weight_decay, clip;
    int32_t skip_nonfinite, grad_dtype;
} nn_update_params;

typedef struct {
    nn_update_params update;
    double beta1, beta2;
} nn_lion_params;

typedef struct {
    nn_update_params update;
    double alpha, eps, momentum;
} nn_rmsprop_params;

typedef struct {
    nn_update_params update;
    double step, lr_decay, eps;
} nn_adagrad_params;

typedef struct {
    int64_t n;
    int32_t first;
} nn_sumsq_params;

typedef struct {
    int32_t count, first, sqrt;
} nn_sum_scalars_params;
// </cdef>
