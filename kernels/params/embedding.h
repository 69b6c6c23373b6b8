// The parameters of embeddings (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// The tile of ids is (batch, len), with positions from `start` on. The weight tile holds rows
// [row_start, row_start + rows) of the vocabulary. vocab: its size, for the range check.
typedef struct {
    int64_t batch, len, start, row_start, rows, vocab, context, cols;
    int32_t first, ids_dtype;
} nn_embedding_params;
// </cdef>
