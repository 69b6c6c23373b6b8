// The parameters of gather and scatter_add (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// PyTorch's gather and its adjoint along the middle of (outer, n, inner); index is (outer, m,
// inner), 0-based. index_dtype: dtype number of the index tile.
typedef struct {
    int64_t outer, n, m, inner;
    int32_t index_dtype;
} nn_gather_params;
// </cdef>
