// The parameters of gated linear units (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// Gated linear units: y (rows, cols) = f(g) u for x (rows, 2 cols) = [g, u]; f is an nn_glu_silu,
// ... Backward: dx, and dbias (2 cols) (+)= its sum over rows.
typedef struct {
    int64_t rows, cols;
    int32_t activation, first;
} nn_glu_params;
// </cdef>

enum { nn_glu_silu, nn_glu_gelu, nn_glu_gelu_exact };
