// Shared by the attention kernels: offsets of heads in the packed rows, causal masks, dropout
// masks. Calls run by cuDNN (attention_cudnn.cu), on tensor cores for bf16 and heads of 64 and 128
// (attention_mma*.cu), or else by a warp per query or key (attention.cu).
#pragma once
#include "kernels/cuda/cuda.cuh"
#include "kernels/math/log.h"
#include "kernels/params/attention.h"
#include "kernels/philox.h"
#include "kernels/relative_bias.h"

namespace nn::NN_TARGET {

// Run the call by cuDNN or on tensor cores; false if they do not support it. delta: rowsum(do o),
// (batch, heads, q_len).
bool attention_cudnn(const KernelCall& call, bool backward);
bool attention_mma(const KernelCall& call);
bool attention_backward_mma(const KernelCall& call, const float* delta);

namespace {

constexpr unsigned attention_threads = 128;  // per block, of our own kernels
constexpr double log2_e = 1.4426950408889634, ln_2 = 0.6931471805599453;

// A query tile and a key tile.
struct Tile {
    nn_attention_params p;
    const void* mask;                     // (batch, k_len) or nullptr
    int64_t q_width, kv_width, k_column;  // of a row of queries, of keys; the first key's column
    int64_t group;                        // query heads per kv head
    uint32_t threshold;                   // weights whose 24 random bits are below are dropped
    double kept_scale;                    // the factor of the others

    __device__ int64_t query(int64_t b, int64_t h, int64_t i) const {
        return (b * p.q_len + i) * q_width + h * p.head_dim;
    }
    __device__ int64_t key(int64_t b, int64_t kv, int64_t j) const {
        return (b * p.k_len + j) * kv_width + k_column + kv * p.head_dim;
    }
    __device__ int64_t value(int64_t b, int64_t kv, int64_t j) const {
        return key(b, kv, j) + p.kv_heads * p.head_dim;
    }
    // In o, do and acc, (batch, q_len, heads * head_dim).
    __device__ int64_t out(int64_t b, int64_t h, int64_t i) const {
        return ((b * p.q_len + i) * p.heads + h) * p.head_dim;
    }
    // In (batch, heads, q_len).
    __device__ int64_t row(int64_t b, int64_t h, int64_t i) const {
        return (b * p.heads + h) * p.q_len + i;
    }
    // The number of the tile's keys that query i sees.
    __device__ int64_t visible(int64_t i) const {
        if (!p.causal) return p.k_len;
        const int64_t seen = p.q_start + i + 1 - p.k_start;
        return seen < 0 ? 0 : smaller(seen, p.k_len);
    }
    // The tile's first key that query i sees, if it sees any.
    __device__ int64_t first_key(int64_t i) const {
        return p.window ? larger<int64_t>(0, p.q_start + i + 1 - p.window - p.k_start) : 0;
    }
    // Whether key j of sequence b is padding, which no query sees. Keys past the tile are not.
    __device__ bool hides(int64_t b, int64_t j) const {
        return mask && j < p.k_len && load_index(mask, Dtype(p.mask_dtype), b * p.k_len + j) == 0;
    }
    // The tile's first query that sees key j.
    __device__ int64_t first_query(int64_t j) const {
        if (!p.causal) return 0;
        return larger<int64_t>(0, p.k_start + j - p.q_start);
    }
    // The first query after those that see key j of sequence b.
    __device__ int64_t end_query(int64_t b, int64_t j) const {
        if (hides(b, j)) return 0;
        return p.window ? smaller(p.q_len, p.k_start + j + p.window - p.q_start) : p.q_len;
    }
    // The dropout factor of key j's weight for query i: a function of the seed and the element's
    // position in the whole (batch, heads, total_len, total_len).
    template <class A> __device__ A dropout(int64_t b, int64_t h, int64_t i, int64_t j) const {
        const uint64_t line =
            uint64_t(((p.batch_start + b) * p.heads + h) * p.total_len + p.q_start + i);
        const uint64_t element = line * uint64_t(p.total_len) + uint64_t(p.k_start + j);
        const Philox4 random = philox(p.seed, p.counter, element / 4);
        const unsigned k = unsigned(element % 4);
        const uint32_t word = k == 0   ? random.word[0]
                              : k == 1 ? random.word[1]
                              : k == 2 ? random.word[2]
                                       : random.word[3];
        return (word >> 8) >= threshold ? A(kept_scale) : A(0);
    }
};

// mask: the number of this operand.
inline Tile tile_of(const KernelCall& call, int mask) {
    const auto& p = call.get<nn_attention_params>();
    const int64_t q = p.heads * p.head_dim, kv = 2 * p.kv_heads * p.head_dim;
    return {p,
            call.input<void>(mask),
            p.cross ? q : q + kv,
            p.cross ? kv : q + kv,
            p.cross ? 0 : q,
            p.heads / p.kv_heads,
            uint32_t(std::ceil(double(float(p.dropout)) * 16777216.0)),
            1 / (1 - p.dropout)};
}

// T5's bias of the scores, (buckets, heads), or none.
template <class T> struct Bias {
    const T* values;
    RelativeBuckets buckets;
    __device__ int32_t bucket(const Tile& tile, int64_t i, int64_t j) const {
        return buckets.of(tile.p.q_start + i - tile.p.k_start - j);
    }
    __device__ Acc<T> of(const Tile& tile, int64_t h, int64_t i, int64_t j) const {
        return values ? Acc<T>(number(values[bucket(tile, i, j) * tile.p.heads + h])) : Acc<T>(0);
    }
};
template <class T> Bias<T> bias_of(const KernelCall& call, int operand) {
    const auto& p = call.get<nn_attention_params>();
    const T* values = call.input<T>(operand);
    if (!values) return {nullptr, {}};
    return {values, relative_buckets(p.buckets, p.max_distance, p.causal != 0)};
}

// 1 / l; 0 for a query that sees no key.
template <class A> __device__ A inverse_sum(A l) { return l > 0 ? A(1) / l : A(0); }
// The log-sum-exp of scores with maximum m and sum l of weights; 0 if there are none.
template <class A> __device__ A log_sum(A m, A l) { return l > 0 ? m + math::log(l) : A(0); }

}  // namespace
}  // namespace nn::NN_TARGET
