// The parameters of rotary position embeddings (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// Rotary position embedding of packed rows (batch, len, width): in each of the first `heads` heads,
// component i < rotated / 2 and component i + rotated / 2 turn by position * frequency(i); all
// other elements are copied. The first token of a sequence is at position `start`, plus that of the
// operand `start`, if given. scale: a factor of the rotated elements. inverse: turn back, as the
// gradient does. scaling: how the frequencies base^(-2 i / rotated) change, see kernels/rope.h.
typedef struct {
    int64_t batch, len, width, heads, head_dim, rotated, start;
    double base, scale, factor, low, high, original;
    int32_t scaling, inverse, start_dtype;
} nn_rope_params;
// </cdef>

enum { nn_rope_plain, nn_rope_linear, nn_rope_llama3, nn_rope_yarn };
