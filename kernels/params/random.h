// The parameters of random numbers and dropout (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// A random number is a function of (seed, counter, row-major index in the whole tensor), not of the
// tiling. uniform: a + (b - a) u; normal: a + b z; dropout: 0 with probability a, else x / (1 - a).
typedef struct {
    uint64_t seed, counter;
    int64_t ndim;
    int64_t extent[8], start[8], whole[8];  // of the tile; the tile's first index; of the tensor
    double a, b;
} nn_random_params;
// </cdef>
