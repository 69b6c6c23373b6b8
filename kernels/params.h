// The parameters of every kernel: plain C structs, one per family. Between the two markers this
// file is also given to LuaJIT's ffi.cdef, so that scripts can submit kernels themselves (nn.task).
// Sizes are in elements unless said otherwise; a "row" is the last axis of a tile; `first` says
// that the output holds nothing yet and is overwritten.
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

// Block copy between two tiles of one dtype; strides and offsets in elements of the dtype.
typedef struct {
    int64_t ndim, src_offset, dst_offset;
    int64_t extent[8], src_stride[8], dst_stride[8];
} nn_copy_params;

typedef struct {
    int64_t n;
    int32_t from;
} nn_cast_params;  // from: dtype number of the source

// y[i...] = f(a, b, c). Operand k of f is a tile with these strides (0 where it is broadcast) or,
// when its bit is set in scalar_mask, the number scalar[k]. y is contiguous. Backward kernels use
// the same layout.
typedef struct {
    int64_t ndim;
    int64_t extent[8];
    int64_t stride[4][8];
    double scalar[4];
    int32_t scalar_mask;
} nn_pointwise_params;

// Randomness is a function of (seed, counter, element's row-major index in the whole tensor), never
// of the tiling. uniform: a + (b - a) u; normal: a + b z; dropout: x / (1 - a) with probability 1 -
// a, else 0.
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

// The tile seen as (outer, n, inner), reduced over n. kind: 0 sum, 1 max, 2 min, 3 product. y =
// scale * reduction, or combined with y when not first. The output has the accumulator dtype for
// kinds 0 and 3, else the input's.
typedef struct {
    int64_t outer, n, inner;
    double scale;
    int32_t kind, first;
} nn_reduce_params;

// index = position of the first largest (kind 1) or smallest (kind 2) element, plus start; value
// goes with it.
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
// Row-major. epilogue: 0 none, 1 + bias(n), 2 tanh-GELU(. + bias) with the sum kept in `aux` where
// given. bias may be absent. wide: c holds the accumulator dtype, f32 for bf16; no epilogue. tf32:
// f32 operands may be rounded to TF32 where the device multiplies that faster.
// gemm_dgelu: epilogue 3, C times GELU'(pre) for pre (m, n) laid out as C, and sums (n), where
// given, the column sums of that; batch 1.
typedef struct {
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    double alpha, beta;
    int32_t trans_a, trans_b, epilogue, wide, tf32;
} nn_gemm_params;

// dpre = dy * GELU'(pre) over (rows, cols), and dbias (cols) (+)= its sum over rows; first: dbias
// is overwritten.
typedef struct {
    int64_t rows, cols;
    int32_t first;
} nn_gelu_bias_backward_params;
typedef struct {
    int64_t rows, cols;
    int32_t first;
} nn_column_sum_params;  // y (cols) (+)= sum over rows

// residual + LayerNorm: s = x + r (r optional, then s is absent too), y = (s - mean) rstd w + b per
// row.
typedef struct {
    int64_t rows, cols;
    double eps;
    int32_t first;
} nn_layernorm_params;

// One (query tile, key tile) pair. A tile holds `batch` sequences of q_len (k_len) tokens, starting
// at position q_start (k_start) of the sequence; a row of qkv is q (heads * head_dim), then k and v
// (kv_heads * head_dim each). first/last: this is the first/last key tile of the query tile
// (forward), or the first write to dq / to dk and dv (backward: first_q, first_kv). stats: (batch,
// heads, q_len, 2) keep the largest score and the sum of the weights relative to it; behind the
// last key tile the log-sum-exp and 1, which say the same.
typedef struct {
    int64_t batch, heads, kv_heads, head_dim, q_len, k_len, q_start, k_start;
    double scale;
    int32_t causal, first, last, first_q, first_kv;
    double dropout;
    uint64_t seed, counter;
    int64_t batch_start,
        total_len;    // with heads: where this tile lies in (B, heads, T, T), for dropout
    int32_t backend;  // on GPUs: 0 auto, 1 cuDNN's fastest, 2 ours (nn.attention_backend)
} nn_attention_params;

// Attention with a cache of keys and values, (batch, 2 kv_heads, context, head_dim): all keys of a
// head, then its values. `len` new tokens a sequence; how many the cache holds before them is data.
typedef struct {
    int64_t batch, heads, kv_heads, head_dim, len, context;
    double scale;
    int32_t start_dtype;
} nn_cache_params;

// tokens: rows of ids in this tile, seen as (batch, len) with positions starting at start. The
// weight tile holds the vocabulary rows [row_start, row_start + rows). vocab: whole vocabulary, for
// the range check.
typedef struct {
    int64_t batch, len, start, row_start, rows, vocab, context, cols;
    int32_t first, ids_dtype;
} nn_embedding_params;

// logits tile (rows, cols) holds columns [col_start, col_start + cols) of `vocab`. targets: one id
// per row, 0-based.
typedef struct {
    int64_t rows, cols, col_start, vocab, ignore_index;
    double scale;
    int32_t first, targets_dtype;
} nn_cross_entropy_params;

// Optimizers. clip: largest allowed global gradient norm, or 0 for none; skip_nonfinite: leave
// everything as it is when the norm is not finite. AdamW as in PyTorch (decoupled weight decay,
// bias correction by step = 1, 2, ...). stochastic: a bf16 parameter without a master is rounded up
// or down by chance, with the numbers that `noise` names (a and b are not used).
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

enum { nn_attention_auto, nn_attention_cudnn, nn_attention_nnlua };
