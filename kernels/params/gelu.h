// The parameters of gelu_bias_backward and column_sum (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// dpre = dy * GELU'(pre) over (rows, cols), and dbias (cols) (+)= its sum over rows.
typedef struct {
    int64_t rows, cols;
    int32_t first;
} nn_gelu_bias_backward_params;

typedef nn_gelu_bias_backward_params nn_column_sum_params;  // y (cols) (+)= sum over rows
// </cdef>
