// The parameters of the kernels of kernels/pointwise.inc (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// y[i...] = f(a, b, c). Operand k of f is a tile with these strides (0: broadcast) or, if its bit
// is set in scalar_mask, the number scalar[k]. y is contiguous. Backward kernels take the same.
typedef struct {
    int64_t ndim;
    int64_t extent[8];
    int64_t stride[4][8];
    double scalar[4];
    int32_t scalar_mask;
} nn_pointwise_params;
// </cdef>
