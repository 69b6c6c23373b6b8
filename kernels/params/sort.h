// The parameters of sort and searchsorted (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// Along the middle of (outer, n, inner): y and index are (outer, count, inner), the elements of
// ranks first to first + count - 1 and their positions. NaN is the largest element; equal elements
// keep their order. nan_wins (count 1, ascending): the result is the first NaN if there is one.
typedef struct {
    int64_t outer, n, inner, first, count;
    int32_t descending, nan_wins;
} nn_sort_params;

// sorted is (rows, n), values and index are (rows, m). index: the first position whose element is
// >= the value, or > it if `right`; n if there is none.
typedef struct {
    int64_t rows, n, m;
    int32_t right;
} nn_searchsorted_params;
// </cdef>
