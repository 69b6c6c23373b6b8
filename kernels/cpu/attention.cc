// Attention over one pair of a query tile and a key tile, and its gradient. Scores exist only for a
// block of 128 keys by 64 queries at a time, whatever the context: the running maximum and sum of a
// query rescale what earlier keys gave (Milakov and Gimelshein, arXiv:1805.02867), and the backward
// pass recomputes weights from their logarithm (Dao et al., arXiv:2205.14135). A block has one row
// per key, so that queries are the lanes of a vector and nothing is summed across lanes; and it is
// small because OpenBLAS multiplies up to 10^6 products without packing.
#include <algorithm>

#include "kernels/cpu/row.h"
#include "kernels/philox.h"

namespace nn::NN_ISA {
namespace {

constexpr int64_t query_block = 64, max_key_block = 128;

struct Tile {
    const nn_attention_params& p;
    int64_t dim = p.head_dim, key_block = p.head_dim <= 96 ? max_key_block : 64;
    int64_t width = (p.heads + 2 * p.kv_heads) * dim;  // of a row of qkv
    int64_t group = p.heads / p.kv_heads;              // query heads that share a kv head
    int64_t k_column(int64_t kv) const { return (p.heads + kv) * dim; }
    int64_t v_column(int64_t kv) const { return (p.heads + p.kv_heads + kv) * dim; }
    // How many keys of the tile query i sees.
    int64_t visible(int64_t i) const {
        return p.causal ? std::clamp(p.q_start + i + 1 - p.k_start, int64_t(0), p.k_len) : p.k_len;
    }
};

// A block of queries of one head against a block of keys: [q0, q0 + rows) and [k0, k0 + keys) of
// their tiles. Blocks of scores and the like are (keys, query_block); lanes is rows rounded up to
// whole vectors.
struct Block {
    int64_t b, h, q0, rows, k0 = 0, keys = 0;
    int64_t lanes = (rows + 15) / 16 * 16;
    // How many of the block's first queries do not see key j.
    int64_t hidden(const Tile& tile, int64_t j) const {
        if (!tile.p.causal) return 0;
        return std::clamp((tile.p.k_start + k0 + j) - (tile.p.q_start + q0), int64_t(0), rows);
    }
};

// A head's part of a row is a few cache lines, each row on a page of its own, where no hardware
// prefetcher follows: asks for the row that is reached eight rows from now.
template <int write, class T>
void fetch_ahead(const T* x, int64_t stride, int64_t row, int64_t len, int64_t dim) {
    if (row + 8 >= len) return;
    const char* ahead = reinterpret_cast<const char*>(x + 8 * stride);
    for (int64_t byte = 0; byte < dim * int64_t(sizeof(T)); byte += 64)
        __builtin_prefetch(ahead + byte, write);
}

// out (len, dim) = scale x, where the rows of x lie `stride` apart.
template <class T, class A>
void load(const T* x, int64_t stride, int64_t len, int64_t dim, A scale, A* out) {
    for (int64_t i = 0; i < len; ++i, x += stride, out += dim) {
        fetch_ahead<0>(x, stride, i, len, dim);
#pragma omp simd
        for (int64_t d = 0; d < dim; ++d) out[d] = A(x[d]) * scale;
    }
}

// out (dim, query_block) = scale x transposed, with zeros in the lanes beyond len.
template <class T, class A>
void load_transposed(const T* x, int64_t stride, int64_t len, int64_t lanes, int64_t dim, A scale,
                     A* out) {
    for (int64_t d = 0; d < dim; ++d) {
        for (int64_t i = 0; i < len; ++i) out[d * query_block + i] = A(x[i * stride + d]) * scale;
        for (int64_t i = len; i < lanes; ++i) out[d * query_block + i] = 0;
    }
}

// x (len, dim, rows `stride` apart) = or += from (len, dim).
template <class T, class A>
void store(const A* from, A scale, bool overwrite, T* x, int64_t stride, int64_t len, int64_t dim) {
    for (int64_t i = 0; i < len; ++i, from += dim, x += stride) {
        fetch_ahead<1>(x, stride, i, len, dim);
        if (overwrite) {
#pragma omp simd
            for (int64_t d = 0; d < dim; ++d) x[d] = T(from[d] * scale);
        } else {
#pragma omp simd
            for (int64_t d = 0; d < dim; ++d) x[d] = T(A(x[d]) + from[d] * scale);
        }
    }
}

// keep (keys, query_block) = 1 or 0: a function of the seed and of the element's place in the whole
// (batch, heads, total_len, total_len) alone. Bytes, since it is written along its columns.
void dropout_mask(const Tile& tile, const Block& at, uint8_t* keep) {
    const nn_attention_params& p = tile.p;
    // of the 24 bits of unit_float
    const uint32_t threshold = uint32_t(std::ceil(double(float(p.dropout)) * 16777216.0));
    uint32_t words[4][48];  // word l of group g; 128 keys lie in at most 33 groups of four
    for (int64_t i = 0; i < at.rows; ++i) {
        const uint64_t row = uint64_t(((p.batch_start + at.b) * p.heads + at.h) * p.total_len +
                                      p.q_start + at.q0 + i);
        const uint64_t first = row * uint64_t(p.total_len) + uint64_t(p.k_start + at.k0);
        const int64_t offset = int64_t(first % 4), groups = (at.keys + offset + 3) / 4;
#pragma omp simd
        for (int64_t g = 0; g < groups; ++g) {
            const Philox4 random = philox(p.seed, p.counter, first / 4 + uint64_t(g));
            words[0][g] = random.word[0], words[1][g] = random.word[1];
            words[2][g] = random.word[2], words[3][g] = random.word[3];
        }
        for (int64_t l = 0; l < 4; ++l)
            for (int64_t g = l < offset, j = 4 * g + l - offset; j < at.keys; ++g, j += 4)
                keep[j * query_block + i] = (words[l][g] >> 8) >= threshold;
    }
}

template <class T> struct Forward {
    using A = Acc<T>;
    Tile tile;
    T* o;
    A *acc, *stats;
    const T *qkv_q, *qkv_k;
    // Scratch: keys and values (k_len, dim); a block of queries, transposed (dim, query_block); its
    // weights (key_block, query_block), running output (rows, dim), maxima and sums.
    A *keys, *values, *query_t, *weights, *out, *m, *l;

    Forward(const KernelCall& call, Scratch& scratch)
        : tile{call.get<nn_attention_params>()},
          o(call.operand<T>(0)),
          acc(call.operand<A>(1)),
          stats(call.operand<A>(2)),
          qkv_q(call.operand<const T>(3)),
          qkv_k(call.operand<const T>(4)) {
        const int64_t keys_size = tile.p.k_len * tile.dim, rows_size = query_block * tile.dim;
        const int64_t block = query_block * tile.key_block;
        A* at = scratch.get<A>(2 * keys_size + 2 * rows_size + block + 2 * query_block);
        for (A** part : {&query_t, &out}) *part = at, at += rows_size;
        for (A** part : {&m, &l}) *part = at, at += query_block;
        for (A** part : {&keys, &values}) *part = at, at += keys_size;
        weights = at;
    }
    A* stat(const Block& at) const {
        return stats + ((at.b * tile.p.heads + at.h) * tile.p.q_len + at.q0) * 2;
    }
    int64_t out_offset(const Block& at) const {
        return (at.b * tile.p.q_len + at.q0) * tile.p.heads * tile.dim + at.h * tile.dim;
    }
};

template <class T> void start_block(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = f.tile.dim;
    const T* q = f.qkv_q + (at.b * f.tile.p.q_len + at.q0) * f.tile.width + at.h * dim;
    load_transposed(q, f.tile.width, at.rows, at.lanes, dim, A(f.tile.p.scale), f.query_t);
    row_fill(f.m, at.lanes, -std::numeric_limits<A>::infinity());
    row_fill(f.l, at.lanes, A(0));
    if (f.tile.p.first) return row_fill(f.out, at.rows * dim, A(0));
    load(f.acc + f.out_offset(at), f.tile.p.heads * dim, at.rows, dim, A(1), f.out);
    const A* stat = f.stat(at);
    for (int64_t i = 0; i < at.rows; ++i) f.m[i] = stat[2 * i], f.l[i] = stat[2 * i + 1];
}

// shift = the maximum over earlier keys and these; keep = e^(old maximum - shift).
template <class T>
void new_maxima(const Forward<T>& f, const Block& at, Acc<T>* shift, Acc<T>* keep) {
    using A = Acc<T>;
    constexpr A none = -std::numeric_limits<A>::infinity();
    row_convert(f.m, at.lanes, shift);
    for (int64_t j = 0; j < at.keys; ++j) {
        A* w = f.weights + j * query_block;
        row_fill(w, at.hidden(f.tile, j), none);
#pragma omp simd
        for (int64_t i = 0; i < at.lanes; ++i) shift[i] = w[i] > shift[i] ? w[i] : shift[i];
    }
#pragma omp simd
    for (int64_t i = 0; i < at.lanes; ++i) {
        const A m = f.m[i];
        f.m[i] = shift[i];
        shift[i] = shift[i] == none ? A(0) : shift[i];  // nothing seen yet
        keep[i] = exp_negative(m - shift[i]);
    }
}

// Scores of a block become unnormalised weights; m, l and the running output follow the maximum.
template <class T> void online_softmax(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    alignas(64) A shift[query_block], keep[query_block];
    new_maxima(f, at, shift, keep);
#pragma omp simd
    for (int64_t i = 0; i < at.lanes; ++i) f.l[i] *= keep[i];
    for (int64_t j = 0; j < at.keys; ++j) {
        A* w = f.weights + j * query_block;
#pragma omp simd
        for (int64_t i = 0; i < at.lanes; ++i) {
            w[i] = exp_negative(w[i] - shift[i]);
            f.l[i] += w[i];
        }
    }
    const int64_t dim = f.tile.dim;
    for (int64_t i = 0; i < at.rows; ++i) {
        if (keep[i] == A(1)) continue;
#pragma omp simd
        for (int64_t d = 0; d < dim; ++d) f.out[i * dim + d] *= keep[i];
    }
}

template <class T> void drop_weights(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    alignas(64) uint8_t keep[max_key_block * query_block];
    dropout_mask(f.tile, at, keep);
    const A scale = A(1 / (1 - f.tile.p.dropout));
    for (int64_t j = 0; j < at.keys * query_block; j += query_block)
#pragma omp simd
        for (int64_t i = 0; i < at.rows; ++i) f.weights[j + i] *= keep[j + i] ? scale : A(0);
}

template <class T> void finish_block(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = f.tile.dim, stride = f.tile.p.heads * dim;
    A* stat = f.stat(at);
    for (int64_t i = 0; i < at.rows; ++i) {
        stat[2 * i] = f.tile.p.last ? f.m[i] + math::log(f.l[i]) : f.m[i];
        stat[2 * i + 1] = f.l[i];
    }
    if (!f.tile.p.last)
        return store(f.out, A(1), true, f.acc + f.out_offset(at), stride, at.rows, dim);
    for (int64_t i = 0; i < at.rows; ++i) {
        A* out = f.out + i * dim;
        const A inverse = A(1) / f.l[i];
#pragma omp simd
        for (int64_t d = 0; d < dim; ++d) out[d] *= inverse;
    }
    store(f.out, A(1), true, f.o + f.out_offset(at), stride, at.rows, dim);
}

template <class T> void attend(const Forward<T>& f, Block at) {
    using A = Acc<T>;
    const int64_t dim = f.tile.dim, ld = query_block, limit = f.tile.visible(at.q0 + at.rows - 1);
    start_block(f, at);
    for (at.k0 = 0; at.k0 < limit; at.k0 += f.tile.key_block) {
        at.keys = std::min(f.tile.key_block, limit - at.k0);
        const A *keys = f.keys + at.k0 * dim, *values = f.values + at.k0 * dim;
        blas::gemm(false, false, at.keys, at.lanes, dim, A(1), keys, dim, f.query_t, ld, A(0),
                   f.weights, ld);
        online_softmax(f, at);
        if (f.tile.p.dropout > 0) drop_weights(f, at);
        blas::gemm(true, false, at.rows, dim, at.keys, A(1), f.weights, ld, values, dim, A(1),
                   f.out, dim);
    }
    finish_block(f, at);
}

void attention(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_attention_params>();
    visit_float(call.dtype, [&](auto t) {
        using T = decltype(t);
        using A = Acc<T>;
        const Forward<T> f(call, scratch);
        const Tile& tile = f.tile;
        for (int64_t i = 0; i < p.batch * p.kv_heads; ++i) {
            const int64_t b = i / p.kv_heads, kv = i % p.kv_heads;
            const T* rows = f.qkv_k + b * p.k_len * tile.width;
            load(rows + tile.k_column(kv), tile.width, p.k_len, tile.dim, A(1), f.keys);
            load(rows + tile.v_column(kv), tile.width, p.k_len, tile.dim, A(1), f.values);
            for (int64_t h = kv * tile.group; h < (kv + 1) * tile.group; ++h)
                for (int64_t q0 = 0; q0 < p.q_len; q0 += query_block)
                    attend(f, {b, h, q0, std::min(query_block, p.q_len - q0)});
        }
    });
}

template <class T> struct Backward {
    using A = Acc<T>;
    Tile tile;
    T *dqkv_q, *dqkv_k;
    const T *qkv_q, *qkv_k, *o, *dout;
    const A* stats;
    // Scratch: keys, values and their gradients (k_len, dim); a block of queries and of dout (rows,
    // dim) and transposed (dim, query_block); its dq (rows, dim); weights and their gradients
    // (key_block, query_block); the log-sum and rowsum(dout o) of its rows.
    A *keys, *values, *dk, *dv, *query, *query_t, *dout_rows, *dout_t, *dq, *weights, *dscores,
        *lse, *delta;

    Backward(const KernelCall& call, Scratch& scratch)
        : tile{call.get<nn_attention_params>()},
          dqkv_q(call.operand<T>(0)),
          dqkv_k(call.operand<T>(1)),
          qkv_q(call.operand<const T>(2)),
          qkv_k(call.operand<const T>(3)),
          o(call.operand<const T>(4)),
          dout(call.operand<const T>(5)),
          stats(call.operand<const A>(6)) {
        const int64_t keys_size = tile.p.k_len * tile.dim, rows_size = query_block * tile.dim;
        const int64_t block = query_block * tile.key_block;
        A* at = scratch.get<A>(4 * keys_size + 5 * rows_size + 2 * block + 2 * query_block);
        for (A** part : {&query, &query_t, &dout_rows, &dout_t, &dq}) *part = at, at += rows_size;
        for (A** part : {&weights, &dscores}) *part = at, at += block;
        for (A** part : {&lse, &delta}) *part = at, at += query_block;
        for (A** part : {&keys, &values, &dk, &dv}) *part = at, at += keys_size;
    }
};

template <class T> void load_queries(const Backward<T>& g, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = g.tile.dim, stride = g.tile.p.heads * dim;
    const int64_t row = at.b * g.tile.p.q_len + at.q0;
    const T* q = g.qkv_q + row * g.tile.width + at.h * dim;
    const T *dout = g.dout + row * stride + at.h * dim, *o = g.o + row * stride + at.h * dim;
    load(q, g.tile.width, at.rows, dim, A(g.tile.p.scale), g.query);
    load_transposed(q, g.tile.width, at.rows, at.lanes, dim, A(g.tile.p.scale), g.query_t);
    load(dout, stride, at.rows, dim, A(1), g.dout_rows);
    load_transposed(dout, stride, at.rows, at.lanes, dim, A(1), g.dout_t);
    row_fill(g.dq, at.rows * dim, A(0));
    row_fill(g.lse, at.lanes, A(0));
    row_fill(g.delta, at.lanes, A(0));
    const A* stat = g.stats + ((at.b * g.tile.p.heads + at.h) * g.tile.p.q_len + at.q0) * 2;
    for (int64_t i = 0; i < at.rows; ++i) {
        g.lse[i] = stat[2 * i];
        A sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < dim; ++d) sum += g.dout_rows[i * dim + d] * A(o[i * stride + d]);
        g.delta[i] = sum;
    }
}

// In place: from scores to the weights P (dropped out), and from dP to the gradient of the scores,
// P (dP - delta).
template <class T> void weight_gradients(const Backward<T>& g, const Block& at) {
    using A = Acc<T>;
    const bool dropout = g.tile.p.dropout > 0;
    const A scale = A(1 / (1 - g.tile.p.dropout));
    alignas(64) uint8_t mask[max_key_block * query_block];
    if (dropout) dropout_mask(g.tile, at, mask);
    for (int64_t j = 0; j < at.keys; ++j) {
        A *w = g.weights + j * query_block, *ds = g.dscores + j * query_block;
        const uint8_t* kept = mask + j * query_block;
        if (dropout) {
#pragma omp simd
            for (int64_t i = 0; i < at.rows; ++i) {
                const A weight = exp_negative(w[i] - g.lse[i]), keep = kept[i] ? scale : A(0);
                ds[i] = weight * (ds[i] * keep - g.delta[i]);
                w[i] = weight * keep;
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < at.lanes; ++i) {
                w[i] = exp_negative(w[i] - g.lse[i]);
                ds[i] = w[i] * (ds[i] - g.delta[i]);
            }
        }
        const int64_t hidden = at.hidden(g.tile, j);
        row_fill(w, hidden, A(0));
        row_fill(ds, hidden, A(0));
    }
}

template <class T> void attend_backward(const Backward<T>& g, Block at) {
    using A = Acc<T>;
    const int64_t dim = g.tile.dim, ld = query_block, rows = at.rows;
    load_queries(g, at);
    const int64_t limit = g.tile.visible(at.q0 + rows - 1);
    for (at.k0 = 0; at.k0 < limit; at.k0 += g.tile.key_block) {
        at.keys = std::min(g.tile.key_block, limit - at.k0);
        const int64_t n = at.keys, offset = at.k0 * dim;
        blas::gemm(false, false, n, at.lanes, dim, A(1), g.keys + offset, dim, g.query_t, ld, A(0),
                   g.weights, ld);
        blas::gemm(false, false, n, at.lanes, dim, A(1), g.values + offset, dim, g.dout_t, ld, A(0),
                   g.dscores, ld);
        weight_gradients(g, at);
        blas::gemm(false, false, n, dim, rows, A(1), g.weights, ld, g.dout_rows, dim, A(1),
                   g.dv + offset, dim);
        blas::gemm(false, false, n, dim, rows, A(1), g.dscores, ld, g.query, dim, A(1),
                   g.dk + offset, dim);
        blas::gemm(true, false, rows, dim, n, A(1), g.dscores, ld, g.keys + offset, dim, A(1), g.dq,
                   dim);
    }
    T* dq = g.dqkv_q + (at.b * g.tile.p.q_len + at.q0) * g.tile.width + at.h * dim;
    store(g.dq, A(g.tile.p.scale), g.tile.p.first_q, dq, g.tile.width, rows, dim);
}

void attention_backward(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_attention_params>();
    visit_float(call.dtype, [&](auto t) {
        using T = decltype(t);
        using A = Acc<T>;
        const Backward<T> g(call, scratch);
        const Tile& tile = g.tile;
        for (int64_t i = 0; i < p.batch * p.kv_heads; ++i) {
            const int64_t b = i / p.kv_heads, kv = i % p.kv_heads, row = b * p.k_len * tile.width;
            load(g.qkv_k + row + tile.k_column(kv), tile.width, p.k_len, tile.dim, A(1), g.keys);
            load(g.qkv_k + row + tile.v_column(kv), tile.width, p.k_len, tile.dim, A(1), g.values);
            row_fill(g.dk, p.k_len * tile.dim, A(0));
            row_fill(g.dv, p.k_len * tile.dim, A(0));
            for (int64_t h = kv * tile.group; h < (kv + 1) * tile.group; ++h)
                for (int64_t q0 = 0; q0 < p.q_len; q0 += query_block)
                    attend_backward(g, {b, h, q0, std::min(query_block, p.q_len - q0)});
            T* dk = g.dqkv_k + row + tile.k_column(kv);
            T* dv = g.dqkv_k + row + tile.v_column(kv);
            store(g.dk, A(1), p.first_kv, dk, tile.width, p.k_len, tile.dim);
            store(g.dv, A(1), p.first_kv, dv, tile.width, p.k_len, tile.dim);
        }
    });
}

NN_KERNEL(attention, "o:w acc:rw? stats:rw qkv_q:r qkv_k:r", nn_attention_params);
NN_KERNEL(attention_backward, "dqkv_q:rw dqkv_k:rw qkv_q:r qkv_k:r o:r do:r stats:r",
          nn_attention_params);

}  // namespace
}  // namespace nn::NN_ISA
