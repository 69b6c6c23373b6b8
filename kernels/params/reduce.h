// The parameters of reductions over an axis (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// The tile seen as (outer, n, inner), reduced over n. kind: 0 sum, 1 max, 2 min, 3 product. y is
// scale * reduction. It has the accumulator dtype for kinds 0 and 3, else the input's.
typedef struct {
    int64_t outer, n, inner;
    double scale;
    int32_t kind, first;
} nn_reduce_params;

// index = position of the first largest (kind 1) or smallest (kind 2) element, plus start; value is
// that element.
typedef struct {
    int64_t outer, n, inner, start;
    int32_t kind, first;
} nn_argreduce_params;
// </cdef>
