// The parameters of LayerNorm and RMSNorm (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// Residual sum and LayerNorm of rows: s = x + r (both optional), y = (s - mean) rstd w + b. rms:
// RMSNorm instead, which takes the mean for 0.
typedef struct {
    int64_t rows, cols;
    double eps;
    int32_t first, rms;
} nn_layernorm_params;
// </cdef>
