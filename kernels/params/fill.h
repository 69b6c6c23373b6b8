// The parameters of fill, cast and arange (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
typedef struct {
    int64_t n;
    double value;
} nn_fill_params;

typedef struct {
    int64_t n;
    int32_t from;
} nn_cast_params;  // from: dtype number of the source

typedef struct {
    int64_t n;
    double start, step;
} nn_arange_params;
// </cdef>
