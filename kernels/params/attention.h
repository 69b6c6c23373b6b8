// The parameters of attention (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// One (query tile, key tile) pair. A tile holds `batch` sequences of q_len (k_len) tokens, starting
// at position q_start (k_start) of the sequence; a row of qkv is q (heads * head_dim), then k and v
// (kv_heads * head_dim each). first, last: this is the first, the last key tile of the query tile
// (forward). first_q, first_kv: the first write to dq, to dk and dv (backward). stats (batch,
// heads, q_len, 2): the largest score and the sum of the weights relative to it; after the last key
// tile the log-sum-exp and 1, or 0 and 1 if the query sees no key. window: with causal, a query
// sees the newest `window` keys only; 0: all. The operand mask (batch, k_len), if given, is 0 for
// keys that no query sees. bias (buckets, heads), if given, is added to the scores by the distance
// of query and key (kernels/relative_bias.h); dbias is the sum of its gradient over the key tiles.
// cross: the queries and the keys are of different sequences, with rows of heads * head_dim and of
// 2 kv_heads * head_dim.
typedef struct {
    int64_t batch, heads, kv_heads, head_dim, q_len, k_len, q_start, k_start, window;
    double scale;
    int32_t causal, first, last, first_q, first_kv;
    double dropout;
    uint64_t seed, counter;
    int64_t batch_start, total_len;  // for dropout: the tile's position in (B, heads, T, T)
    int32_t backend;  // on GPUs: 0 auto, 1 cuDNN's fastest, 2 ours (nn.attention_backend)
    int32_t mask_dtype, cross;
    int64_t buckets, max_distance;
} nn_attention_params;
// </cdef>

enum { nn_attention_auto, nn_attention_cudnn, nn_attention_nnlua };
