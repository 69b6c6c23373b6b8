// The parameters of running sums and products (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// Along the middle of (outer, n, inner): y[j] combines x[0] to x[j], or x[j] to x[n - 1] if
// `reverse`. kind: 0 sum, 1 product. y has x's dtype, or i64 if that is no float.
typedef struct {
    int64_t outer, n, inner;
    int32_t kind, reverse;
} nn_scan_params;
// </cdef>
