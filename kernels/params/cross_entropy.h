// The parameters of the cross entropy (kernels/params.h).
#pragma once
#include <stdint.h>

// A sum over no targets is 0, also after the division by 0 of them.
constexpr double nn_least_divisor = 1e-300;

// <cdef>
// The tile of logits (rows, cols) holds columns [col_start, col_start + cols) of `vocab`; its rows,
// and those of its gradient, begin every `ld` elements. targets: one id a row, 0-based.
typedef struct {
    int64_t rows, cols, ld, col_start, vocab, ignore_index;
    double scale;
    int32_t first, targets_dtype;
} nn_cross_entropy_params;
// </cdef>
