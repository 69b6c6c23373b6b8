// The parameters of kernels that work by rows, such as softmax (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
typedef struct {
    int64_t rows, cols;
} nn_rows_params;
// </cdef>
