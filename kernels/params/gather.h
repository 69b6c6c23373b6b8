// The parameters of gather, scatter and scatter_add (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// PyTorch's gather, its adjoint and scatter along the middle of (outer, n, inner); index is
// (outer, m, inner), or (m) for every (outer, inner) if `shared`; 0-based. index_dtype: dtype
// number of the index tile.
typedef struct {
    int64_t outer, n, m, inner;
    int32_t index_dtype, shared;
} nn_gather_params;
// </cdef>
