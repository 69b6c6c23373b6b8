// The parameters of every kernel: plain C structs, one per family. LuaJIT's ffi.cdef reads the text
// between the two markers, so that scripts can submit kernels (nn.task). Sizes are in elements
// unless stated; a row is the last axis of a tile; `first`: overwrite the output instead of adding
// to it.
#pragma once
#ifdef __cplusplus
#include <cstdint>
#else
#include <stdint.h>
#endif

// <cdef>
typedef struct {
    int64_t n;
    double value;
} nn_fill_params;

// Block copy between two tiles of one dtype.
typedef struct {
    int64_t ndim, src_offset, dst_offset;
    int64_t extent[8], src_stride[8], dst_stride[8];
} nn_copy_params;

typedef struct {
    int64_t n;
    int32_t from;
} nn_cast_params;  // from: dtype number of the source

// y[i...] = f(a, b, c). Operand k of f is a tile with these strides (0: broadcast) or, if its bit
// is set in scalar_mask, the number scalar[k]. y is contiguous. Backward kernels take the same.
typedef struct {
    int64_t ndim;
    int64_t extent[8];
    int64_t stride[4][8];
    double scalar[4];
    int32_t scalar_mask;
} nn_pointwise_params;

// A random number is a function of (seed, counter, row-major index in the whole tensor), not of the
// tiling. uniform: a + (b - a) u; normal: a + b z; dropout: 0 with probability a, else x / (1 - a).
typedef struct {
    uint64_t seed, counter;
    int64_t ndim;
    int64_t extent[8], start[8], whole[8];  // of the tile; the tile's first index; of the tensor
    double a, b;
} nn_random_params;

typedef struct {
    int64_t n;
    double start, step;
} nn_arange_params;

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

typedef struct {
    int64_t rows, cols;
} nn_rows_params;

// PyTorch's gather and its adjoint along the middle of (outer, n, inner); index is (outer, m,
// inner), 0-based. index_dtype: dtype number of the index tile.
typedef struct {
    int64_t outer, n, m, inner;
    int32_t index_dtype;
} nn_gather_params;

// C (m,n) = alpha op(A) op(B) + beta C, `batch` times with the given strides between matrices.
// Row-major. epilogue: 0 none, 1 + bias(n), 2 tanh-GELU(. + bias), which stores its argument in
// `aux` if given. bias may be absent. wide: c has the accumulator dtype, f32 for bf16; no epilogue.
// tf32: f32 operands may be rounded to TF32 if the device multiplies that faster.
// gemm_dgelu: epilogue 3, C times GELU'(pre) for pre (m, n) laid out as C; sums (n), if given, are
// the column sums of that; batch 1.
// gemm_dglu: epilogue 4 + f, for f an nn_glu_silu, ...: C is the left half of dx (m, 2 n), and its
// value d becomes dx = [d u f'(g), d f(g)] for x (m, 2 n) = [g, u] laid out as dx; sums (2 n), if
// given, are the column sums of dx; batch 1.
typedef struct {
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    double alpha, beta;
    int32_t trans_a, trans_b, epilogue, wide, tf32;
} nn_gemm_params;

// C (m,n) = A B^T diag(scale) + bias(n), with gelu GELU of that, for A (m,k) and B (n,k) of bytes:
// a byte b stands for b - 128, which is multiplied by the scale of its row of B.
typedef struct {
    int64_t m, n, k;
    int32_t gelu;
} nn_gemm_bytes_params;

// dpre = dy * GELU'(pre) over (rows, cols), and dbias (cols) (+)= its sum over rows.
typedef struct {
    int64_t rows, cols;
    int32_t first;
} nn_gelu_bias_backward_params;
typedef nn_gelu_bias_backward_params nn_column_sum_params;  // y (cols) (+)= sum over rows

// Residual sum and LayerNorm of rows: s = x + r (both optional), y = (s - mean) rstd w + b. rms:
// RMSNorm instead, which takes the mean for 0.
typedef struct {
    int64_t rows, cols;
    double eps;
    int32_t first, rms;
} nn_layernorm_params;

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

// Gated linear units: y (rows, cols) = f(g) u for x (rows, 2 cols) = [g, u]; f is an nn_glu_silu,
// ... Backward: dx, and dbias (2 cols) (+)= its sum over rows.
typedef struct {
    int64_t rows, cols;
    int32_t activation, first;
} nn_glu_params;

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

// The tile of ids is (batch, len), with positions from `start` on. The weight tile holds rows
// [row_start, row_start + rows) of the vocabulary. vocab: its size, for the range check.
typedef struct {
    int64_t batch, len, start, row_start, rows, vocab, context, cols;
    int32_t first, ids_dtype;
} nn_embedding_params;

// The tile of logits (rows, cols) holds columns [col_start, col_start + cols) of `vocab`; its rows,
// and those of its gradient, begin every `ld` elements. targets: one id a row, 0-based.
typedef struct {
    int64_t rows, cols, ld, col_start, vocab, ignore_index;
    double scale;
    int32_t first, targets_dtype;
} nn_cross_entropy_params;

// Optimizers. clip: the largest global gradient norm, 0 for none; skip_nonfinite: change nothing if
// the norm is not finite. AdamW as in PyTorch (decoupled weight decay, bias correction by step = 1,
// 2, ...). stochastic: a bf16 parameter without a master is rounded stochastically, with the random
// numbers of `noise` (a and b are not used).
typedef struct {
    int64_t n;
    double lr, beta1, beta2, eps, weight_decay, step, clip;
    int32_t skip_nonfinite, grad_dtype, stochastic;
    nn_random_params noise;
} nn_adamw_params;
typedef struct {
    int64_t n;
    double lr, momentum, weight_decay, clip;
    int32_t nesterov, first, skip_nonfinite, grad_dtype;
} nn_sgd_params;

typedef struct {
    int64_t n;
    int32_t first;
} nn_sumsq_params;
typedef struct {
    int32_t count, first, sqrt;
} nn_sum_scalars_params;
// </cdef>

enum { nn_glu_silu, nn_glu_gelu, nn_glu_gelu_exact };
enum { nn_rope_plain, nn_rope_linear, nn_rope_llama3, nn_rope_yarn };
enum { nn_attention_auto, nn_attention_cudnn, nn_attention_nnlua };
