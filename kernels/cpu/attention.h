// Shared by attention and its gradient: blocks of queries and keys, loads and stores of a head's
// rows, the dropout mask. Scores exist for one block at a time, of at most 128 keys by 64 queries.
// A block has one row per key: queries are the lanes of a vector, so nothing is summed across
// lanes. A block's matrices fit the L1 or L2 cache.
#pragma once
#include "kernels/cpu/row.h"
#include "kernels/cpu/small_product.h"
#include "kernels/params/attention.h"
#include "kernels/philox.h"
#include "kernels/relative_bias.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t query_block = 64, max_key_block = 128;

struct Block;

struct Tile {
    const nn_attention_params& p;
    Indices mask;
    int64_t dim = p.head_dim, key_block = p.head_dim <= 96 ? max_key_block : 64;
    int64_t ld = padded(dim);  // of a head's rows in scratch
    bool uses_hidden = false;  // units also use the scores that the mask hides
    int64_t packed = (p.heads + 2 * p.kv_heads) * dim;  // the width of a row of qkv
    int64_t q_width = p.cross ? p.heads * dim : packed;
    int64_t kv_width = p.cross ? 2 * p.kv_heads * dim : packed;
    int64_t group = p.heads / p.kv_heads;  // query heads per kv head
    int64_t k_column(int64_t kv) const { return (p.cross ? kv : p.heads + kv) * dim; }
    int64_t v_column(int64_t kv) const { return k_column(kv) + p.kv_heads * dim; }
    // The first key and value of a block in a tile of keys and values.
    template <class T> const T* keys(const T* qkv, const Block& at) const;
    template <class T> const T* values(const T* qkv, const Block& at) const;
    // The number of the tile's keys that query i sees.
    int64_t visible(int64_t i) const {
        return p.causal ? std::clamp(p.q_start + i + 1 - p.k_start, int64_t(0), p.k_len) : p.k_len;
    }
    // The tile's first key that query i sees, if it sees any.
    int64_t first_key(int64_t i) const {
        if (!p.window) return 0;
        return std::clamp(p.q_start + i + 1 - p.window - p.k_start, int64_t(0), p.k_len);
    }
    // Whether key j of sequence b is padding, which no query sees.
    bool hides(int64_t b, int64_t j) const { return mask.data && mask[b * p.k_len + j] == 0; }
};

// Queries [q0, q0 + rows) of one head against keys [k0, k0 + keys), indices in their tiles. Scores
// and weights are (keys, query_block); lanes is rows rounded up to whole vectors.
struct Block {
    int64_t b, h, q0, rows, k0 = 0, keys = 0;
    int64_t lanes = padded(rows);
    // The number of the block's first queries that do not see key j.
    int64_t masked(const Tile& tile, int64_t j) const {
        if (!tile.p.causal) return 0;
        return std::clamp((tile.p.k_start + k0 + j) - (tile.p.q_start + q0), int64_t(0), rows);
    }
    // The first query after those that see key j.
    int64_t end(const Tile& tile, int64_t j) const {
        if (!tile.p.window) return rows;
        const int64_t key = tile.p.k_start + k0 + j;
        return std::clamp(key + tile.p.window - (tile.p.q_start + q0), int64_t(0), rows);
    }
    // Whole vectors of lanes around the queries that see key j or another of its group of rows: of
    // a block of scores, only these lanes are computed and used.
    Range seen(const Tile& tile, int64_t j) const {
        if (tile.uses_hidden) return {0, lanes};
        const int64_t first = j / row_group * row_group;
        const int64_t last = std::min(first + row_group, keys) - 1;
        const int64_t begin = masked(tile, first) / lane_multiple * lane_multiple;
        return {begin, std::max(begin, padded(end(tile, last)))};
    }
    // The block's keys that are seen by the queries of the group from query i on.
    Range seen_by(const Tile& tile, int64_t i) const {
        const int64_t last = std::min(i + row_group, rows) - 1;
        const auto in_block = [&](int64_t key) { return std::clamp(key - k0, int64_t(0), keys); };
        return {in_block(tile.first_key(q0 + i)), in_block(tile.visible(q0 + last))};
    }
    // Sets w (query_block) to `value` for the queries of `range` that do not see key j.
    template <class A> void mask(const Tile& tile, int64_t j, Range range, A value, A* w) const {
        const bool hidden = tile.hides(b, k0 + j);
        const int64_t first = hidden ? range.end : masked(tile, j), last = end(tile, j);
        for (int64_t i = range.begin; i < first; ++i) w[i] = value;
        for (int64_t i = std::max(first, last); i < range.end; ++i) w[i] = value;
    }
};

template <class T> const T* Tile::keys(const T* qkv, const Block& at) const {
    return qkv + (at.b * p.k_len + at.k0) * kv_width + k_column(at.h / group);
}
template <class T> const T* Tile::values(const T* qkv, const Block& at) const {
    return qkv + (at.b * p.k_len + at.k0) * kv_width + v_column(at.h / group);
}

// Prefetches the row eight rows ahead. A head has a few cache lines in each row, and every row is
// on another page, which hardware prefetchers do not follow.
template <int write, class T>
void prefetch(const T* x, int64_t stride, int64_t row, int64_t len, int64_t dim) {
    if (row + 8 >= len) return;
    const char* ahead = reinterpret_cast<const char*>(x + 8 * stride);
    for (int64_t byte = 0; byte < dim * int64_t(sizeof(T)); byte += 64)
        __builtin_prefetch(ahead + byte, write);
}

// out (len, padded(dim)) = scale x, with zeros after each row; the rows of x are `stride` apart.
template <class T, class A>
void load(const T* x, int64_t stride, int64_t len, int64_t dim, A scale, A* out) {
    const int64_t ld = padded(dim);
    for (int64_t i = 0; i < len; ++i, x += stride, out += ld) {
        prefetch<0>(x, stride, i, len, dim);
        simd_for(dim, [=](int64_t d) { out[d] = A(x[d]) * scale; });
        if (dim < ld) row_fill(out + dim, ld - dim, A(0));  // no empty call of memset
    }
}

// out (ld, query_block) = x (len, ld) transposed, with zeros in the lanes beyond len.
template <class A> void transpose(const A* x, int64_t ld, int64_t len, int64_t lanes, A* out) {
    for (int64_t d = 0; d < ld; d += lane_multiple) {
        A* const rows = out + d * query_block;
        for (int64_t i = 0; i < len; ++i)
            for (int64_t e = 0; e < lane_multiple; ++e)
                rows[e * query_block + i] = x[i * ld + d + e];
        for (int64_t e = 0; e < lane_multiple; ++e)
            row_fill(rows + e * query_block + len, lanes - len, A(0));
    }
}

// x (len, dim, rows `stride` apart) = or += from (len, padded(dim)).
template <class T, class A>
void store(const A* from, A scale, bool overwrite, T* x, int64_t stride, int64_t len, int64_t dim) {
    for (int64_t i = 0; i < len; ++i, from += padded(dim), x += stride) {
        prefetch<1>(x, stride, i, len, dim);
        if (overwrite)
            simd_for(dim, [=](int64_t d) { x[d] = T(from[d] * scale); });
        else
            simd_for(dim, [=](int64_t d) { x[d] = T(A(x[d]) + from[d] * scale); });
    }
}

// The products without units, for the queries and keys that see each other. Scratch matrices, with
// dim padded to tile.ld: keys and values (k_len, dim), queries (rows, dim), transposed (dim,
// query_block); scores and weights (keys, query_block).

// scores = keys queries
template <class A>
void scores_of(const Tile& tile, const Block& at, const A* keys, const A* query_t, A* scores) {
    multiply_small(
        at.keys, LeftMatrix<A>{keys + at.k0 * tile.ld, tile.ld, 1}, query_t, query_block, false,
        scores, query_block,
        [&](int64_t) {
            return Range{0, tile.dim};
        },
        [&](int64_t j) { return at.seen(tile, j); });
}
// out (rows, dim) += weights values, summed over the keys
template <class A>
void add_by_query(const Tile& tile, const Block& at, const A* weights, const A* values, A* out) {
    multiply_small(
        at.rows, LeftMatrix<A>{weights, 1, query_block}, values + at.k0 * tile.ld, tile.ld, true,
        out, tile.ld, [&](int64_t i) { return at.seen_by(tile, i); },
        [&](int64_t) {
            return Range{0, tile.ld};
        });
}
// out (k_len, dim) += weights queries, summed over the queries
template <class A>
void add_by_key(const Tile& tile, const Block& at, const A* weights, const A* queries, A* out) {
    multiply_small(
        at.keys, LeftMatrix<A>{weights, query_block, 1}, queries, tile.ld, true,
        out + at.k0 * tile.ld, tile.ld,
        [&](int64_t j) {
            const Range lanes = at.seen(tile, j);
            return Range{lanes.begin, std::min(lanes.end, at.rows)};
        },
        [&](int64_t) {
            return Range{0, tile.ld};
        });
}

// Loads the keys and values of kv head i of the tile, counted over all its sequences, unless units
// read them in place, and calls f(block) for the blocks of queries that attend to them. G is a
// Forward or a Backward.
template <class G, class F> void attend_head(const G& g, int64_t i, F f) {
    const Tile& tile = g.tile;
    const int64_t b = i / tile.p.kv_heads, kv = i % tile.p.kv_heads;
    const auto* rows = g.qkv_k + b * tile.p.k_len * tile.kv_width;
    const typename G::A one = 1;
    if (!g.units) {
        load(rows + tile.k_column(kv), tile.kv_width, tile.p.k_len, tile.dim, one, g.keys);
        load(rows + tile.v_column(kv), tile.kv_width, tile.p.k_len, tile.dim, one, g.values);
    }
    for (int64_t h = kv * tile.group; h < (kv + 1) * tile.group; ++h)
        for (int64_t q0 = 0; q0 < tile.p.q_len; q0 += query_block)
            f(Block{b, h, q0, std::min(query_block, tile.p.q_len - q0)});
}

// T5's bias of the scores of a head, by distance: element i - j + k_len - 1 is that of query i and
// key j of the tiles. The lanes of a block may read beyond the last query.
template <class A> struct DistanceBias {
    A* values = nullptr;
    static int64_t size(const Tile& tile) { return tile.p.q_len + tile.p.k_len + query_block; }
    A* of(const Tile& tile, const Block& at, int64_t j) const {
        return values + at.q0 - (at.k0 + j) + tile.p.k_len - 1;
    }
    // Calls f(value, bucket) for all distances.
    template <class F> void each(const Tile& tile, F f) const {
        const nn_attention_params& p = tile.p;
        const RelativeBuckets buckets = relative_buckets(p.buckets, p.max_distance, p.causal);
        const int64_t least = p.q_start - p.k_start - (p.k_len - 1);
        for (int64_t i = 0; i < p.q_len + p.k_len - 1; ++i) f(values[i], buckets.of(least + i));
    }
    template <class T> void load(const Tile& tile, const T* bias, int64_t h) const {
        row_fill(values, size(tile), A(0));
        each(tile, [&](A& value, int64_t bucket) { value = A(bias[bucket * tile.p.heads + h]); });
    }
    // Adds the bias to the scores of a block.
    void add(const Tile& tile, const Block& at, A* scores) const {
        for (int64_t j = 0; j < at.keys; ++j) {
            const Range lanes = at.seen(tile, j);
            A* w = scores + j * query_block + lanes.begin;
            const A* b = of(tile, at, j) + lanes.begin;
            simd_for(lanes.end - lanes.begin, [=](int64_t i) { w[i] += b[i]; });
        }
    }
};

// keep (keys, query_block) = 1 or 0, a function of the seed and the element's position in the whole
// (batch, heads, total_len, total_len). In bytes, because it is written along columns.
void dropout_mask(const Tile& tile, const Block& at, uint8_t* keep) {
    const nn_attention_params& p = tile.p;
    // for the 24 bits of unit_float
    const uint32_t threshold = uint32_t(std::ceil(double(float(p.dropout)) * 16777216.0));
    uint32_t words[4][48];  // word l of group g; 128 keys span at most 33 groups of four
    for (int64_t i = 0; i < at.rows; ++i) {
        const uint64_t row = uint64_t(((p.batch_start + at.b) * p.heads + at.h) * p.total_len +
                                      p.q_start + at.q0 + i);
        const uint64_t first = row * uint64_t(p.total_len) + uint64_t(p.k_start + at.k0);
        const int64_t offset = int64_t(first % 4), groups = (at.keys + offset + 3) / 4;
        simd_for(groups, [&](int64_t g) {
            const Philox4 random = philox(p.seed, p.counter, first / 4 + uint64_t(g));
            words[0][g] = random.word[0], words[1][g] = random.word[1];
            words[2][g] = random.word[2], words[3][g] = random.word[3];
        });
        for (int64_t l = 0; l < 4; ++l)
            for (int64_t g = l < offset, j = 4 * g + l - offset; j < at.keys; ++g, j += 4)
                keep[j * query_block + i] = (words[l][g] >> 8) >= threshold;
    }
}

}  // namespace
}  // namespace nn::NN_TARGET
