// The parameters of attention with a cache of keys and values (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// Attention with a cache of keys and values, (batch, 2 kv_heads, context, head_dim): the keys of
// all heads, then the values. `len` new tokens per sequence; the operand `start` is the number of
// tokens in the cache before them. window: a query sees the newest `window` keys only; 0: all. bias
// (buckets, heads), if given, is added to the scores as in nn_attention_params, with causal.
typedef struct {
    int64_t batch, heads, kv_heads, head_dim, len, context, window;
    double scale;
    int32_t start_dtype;
    int64_t buckets, max_distance;
} nn_cache_params;
// </cdef>
