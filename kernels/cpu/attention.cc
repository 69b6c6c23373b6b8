// Attention over one pair of a query tile and a key tile, and its gradient. Scores exist only for a block of 64 queries
// by 128 keys at a time, whatever the context: the running maximum and sum of a row rescale what earlier keys gave
// (Milakov and Gimelshein, arXiv:1805.02867), and the backward pass recomputes weights from their logarithm (Dao et al.,
// arXiv:2205.14135). Blocks are this small because OpenBLAS multiplies up to 10^6 products without packing.
#include <algorithm>

#include "kernels/cpu/row.h"
#include "kernels/philox.h"

namespace nn::NN_ISA {
namespace {

constexpr int64_t query_block = 64;

struct Tile {
    const nn_attention_params& p;
    int64_t dim = p.head_dim, key_block = p.head_dim <= 96 ? 128 : 64;
    int64_t width = (p.heads + 2 * p.kv_heads) * dim;         // of a row of qkv
    int64_t group = p.heads / p.kv_heads;                     // query heads that share a kv head
    int64_t k_column(int64_t kv) const { return (p.heads + kv) * dim; }
    int64_t v_column(int64_t kv) const { return (p.heads + p.kv_heads + kv) * dim; }
    // How many of the keys [k0, k0 + n) query i sees; both count from the tile's first.
    int64_t visible(int64_t i, int64_t k0, int64_t n) const {
        if (!p.causal) return n;
        return std::clamp(p.q_start + i + 1 - (p.k_start + k0), int64_t(0), n);
    }
};

// A block of queries of one head against a block of keys: [q0, q0 + rows) and [k0, k0 + keys) of the tile.
struct Block {
    int64_t b, h, q0, rows, k0 = 0, keys = 0;
};

// out (len, dim) = scale x, where the rows of x lie `stride` apart.
template <class T, class A> void load(const T* x, int64_t stride, int64_t len, int64_t dim, A scale, A* out) {
    for (int64_t i = 0; i < len; ++i, x += stride, out += dim)
#pragma omp simd
        for (int64_t d = 0; d < dim; ++d) out[d] = A(x[d]) * scale;
}

// out (dim, len) with row stride ld = the transpose of x; 16 columns at a time, a cache line of out.
template <class T, class A>
void load_transposed(const T* x, int64_t stride, int64_t len, int64_t dim, A scale, A* out, int64_t ld) {
    for (int64_t i = 0; i < len; i += 16) {
        const int64_t n = std::min(int64_t(16), len - i);
        for (int64_t d = 0; d < dim; ++d)
#pragma omp simd
            for (int64_t j = 0; j < n; ++j) out[d * ld + i + j] = A(x[(i + j) * stride + d]) * scale;
    }
}

// x (len, dim, rows `stride` apart) = or += from (len, dim).
template <class T, class A>
void store(const A* from, A scale, bool overwrite, T* x, int64_t stride, int64_t len, int64_t dim) {
    for (int64_t i = 0; i < len; ++i, from += dim, x += stride) {
        if (overwrite) {
#pragma omp simd
            for (int64_t d = 0; d < dim; ++d) x[d] = T(from[d] * scale);
        } else {
#pragma omp simd
            for (int64_t d = 0; d < dim; ++d) x[d] = T(A(x[d]) + from[d] * scale);
        }
    }
}

// keep[i * row_stride + j * col_stride] = 1 / (1 - dropout) or 0 for query i and key j of the block: a function of the
// seed and of the element's place in the whole (batch, heads, total_len, total_len) alone.
template <class A> void dropout_mask(const Tile& tile, const Block& at, int64_t row_stride, int64_t col_stride, A* keep) {
    const nn_attention_params& p = tile.p;
    const uint32_t threshold = uint32_t(std::ceil(p.dropout * 16777216.0));  // of the 24 bits of unit_float
    const A scale = A(1 / (1 - p.dropout));
    alignas(64) uint32_t words[4 * 34];  // 128 keys lie in at most 33 groups of four
    for (int64_t i = 0; i < at.rows; ++i) {
        const uint64_t row = uint64_t(((p.batch_start + at.b) * p.heads + at.h) * p.total_len + p.q_start + at.q0 + i);
        const uint64_t first = row * uint64_t(p.total_len) + uint64_t(p.k_start + at.k0);
        const int64_t groups = int64_t((first + uint64_t(at.keys) + 3) / 4 - first / 4);
#pragma omp simd
        for (int64_t g = 0; g < groups; ++g) {
            const Philox4 random = philox(p.seed, p.counter, first / 4 + uint64_t(g));
            for (int l = 0; l < 4; ++l) words[4 * g + l] = random.word[l];
        }
        for (int64_t j = 0; j < at.keys; ++j)
            keep[i * row_stride + j * col_stride] = (words[first % 4 + uint64_t(j)] >> 8) >= threshold ? scale : A(0);
    }
}

template <class T> struct Forward {
    using A = Acc<T>;
    Tile tile;
    T* o;
    A *acc, *stats;
    const T *qkv_q, *qkv_k;
    // Scratch: keys by blocks, each (dim, key_block); values (k_len, dim); one block of queries (rows, dim), of scores
    // and of dropout (rows, key_block); the running output (rows, dim), maxima and sums (rows).
    A *keys, *values, *query, *scores, *keep, *out, *m, *l;

    Forward(const KernelCall& call, Scratch& scratch)
        : tile{call.get<nn_attention_params>()}, o(call.operand<T>(0)), acc(call.operand<A>(1)),
          stats(call.operand<A>(2)), qkv_q(call.operand<const T>(3)), qkv_k(call.operand<const T>(4)) {
        const int64_t blocks = (tile.p.k_len + tile.key_block - 1) / tile.key_block;
        const int64_t keys_size = blocks * tile.key_block * tile.dim, block = query_block * tile.key_block;
        const int64_t rows_size = query_block * tile.dim;
        keys = scratch.get<A>(2 * keys_size + 2 * block + 2 * rows_size + 2 * query_block);
        values = keys + keys_size, scores = values + keys_size, keep = scores + block;
        query = keep + block, out = query + rows_size, m = out + rows_size, l = m + query_block;
    }
    A* stat(const Block& at) const { return stats + ((at.b * tile.p.heads + at.h) * tile.p.q_len + at.q0) * 2; }
    int64_t out_offset(const Block& at) const {
        return (at.b * tile.p.q_len + at.q0) * tile.p.heads * tile.dim + at.h * tile.dim;
    }
};

template <class T> void start_block(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = f.tile.dim;
    const T* q = f.qkv_q + (at.b * f.tile.p.q_len + at.q0) * f.tile.width + at.h * dim;
    load(q, f.tile.width, at.rows, dim, A(f.tile.p.scale), f.query);
    if (f.tile.p.first) {
        row_fill(f.out, at.rows * dim, A(0));
        row_fill(f.m, at.rows, -std::numeric_limits<A>::infinity());
        row_fill(f.l, at.rows, A(0));
        return;
    }
    load(f.acc + f.out_offset(at), f.tile.p.heads * dim, at.rows, dim, A(1), f.out);
    const A* stat = f.stat(at);
    for (int64_t i = 0; i < at.rows; ++i) f.m[i] = stat[2 * i], f.l[i] = stat[2 * i + 1];
}

// Scores of one block become unnormalised weights; m, l and the running output follow the new maximum.
template <class T> void online_softmax(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    constexpr A none = -std::numeric_limits<A>::infinity();
    for (int64_t i = 0; i < at.rows; ++i) {
        A* s = f.scores + i * f.tile.key_block;
        const int64_t visible = f.tile.visible(at.q0 + i, at.k0, at.keys);
        const A before = f.m[i], here = row_max(s, visible), m = here > before ? here : before;
        const A sum = row_exp(s, visible, m == none ? A(0) : m, s);  // nothing seen yet: e^-inf = 0
        row_fill(s + visible, at.keys - visible, A(0));
        if (m == before) {
            f.l[i] += sum;
            continue;
        }
        const A kept = exp_negative(before - m);
        f.m[i] = m;
        f.l[i] = f.l[i] * kept + sum;
        A* out = f.out + i * f.tile.dim;
#pragma omp simd
        for (int64_t d = 0; d < f.tile.dim; ++d) out[d] *= kept;
    }
}

template <class T> void finish_block(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = f.tile.dim, stride = f.tile.p.heads * dim;
    A* stat = f.stat(at);
    for (int64_t i = 0; i < at.rows; ++i) {
        stat[2 * i] = f.tile.p.last ? f.m[i] + std::log(f.l[i]) : f.m[i];
        stat[2 * i + 1] = f.l[i];
        if (f.tile.p.last)
            store(f.out + i * dim, A(1) / f.l[i], true, f.o + f.out_offset(at) + i * stride, stride, 1, dim);
    }
    if (!f.tile.p.last) store(f.out, A(1), true, f.acc + f.out_offset(at), stride, at.rows, dim);
}

template <class T> void attend(const Forward<T>& f, Block at) {
    using A = Acc<T>;
    const int64_t dim = f.tile.dim, ld = f.tile.key_block;
    start_block(f, at);
    const int64_t limit = f.tile.visible(at.q0 + at.rows - 1, 0, f.tile.p.k_len);
    for (at.k0 = 0; at.k0 < limit; at.k0 += ld) {
        at.keys = std::min(ld, limit - at.k0);
        blas::gemm(false, false, at.rows, at.keys, dim, A(1), f.query, dim, f.keys + at.k0 * dim, ld, A(0), f.scores, ld);
        online_softmax(f, at);
        if (f.tile.p.dropout > 0) {
            dropout_mask(f.tile, at, ld, 1, f.keep);
            for (int64_t i = 0; i < at.rows; ++i)
#pragma omp simd
                for (int64_t j = 0; j < at.keys; ++j) f.scores[i * ld + j] *= f.keep[i * ld + j];
        }
        blas::gemm(false, false, at.rows, dim, at.keys, A(1), f.scores, ld, f.values + at.k0 * dim, dim, A(1), f.out, dim);
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
            for (int64_t k0 = 0; k0 < p.k_len; k0 += tile.key_block)
                load_transposed(rows + k0 * tile.width + tile.k_column(kv), tile.width,
                                std::min(tile.key_block, p.k_len - k0), tile.dim, A(1), f.keys + k0 * tile.dim,
                                tile.key_block);
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
    // Scratch: keys, values and their gradients (k_len, dim); a block of queries and of dout (rows, dim) and transposed
    // (dim, query_block); its dq (rows, dim); weights, their gradients and dropout, all (key_block, query_block) with
    // the key first; the log-sum and rowsum(dout o) of its rows.
    A *keys, *values, *dk, *dv, *query, *query_t, *dout_rows, *dout_t, *dq, *weights, *dscores, *keep, *lse, *delta;

    Backward(const KernelCall& call, Scratch& scratch)
        : tile{call.get<nn_attention_params>()}, dqkv_q(call.operand<T>(0)), dqkv_k(call.operand<T>(1)),
          qkv_q(call.operand<const T>(2)), qkv_k(call.operand<const T>(3)), o(call.operand<const T>(4)),
          dout(call.operand<const T>(5)), stats(call.operand<const A>(6)) {
        const int64_t keys_size = tile.p.k_len * tile.dim, rows_size = query_block * tile.dim;
        const int64_t block = query_block * tile.key_block;
        A* at = scratch.get<A>(4 * keys_size + 5 * rows_size + 3 * block + 2 * query_block);
        for (A** part : {&keys, &values, &dk, &dv}) *part = at, at += keys_size;
        for (A** part : {&query, &query_t, &dout_rows, &dout_t, &dq}) *part = at, at += rows_size;
        for (A** part : {&weights, &dscores, &keep}) *part = at, at += block;
        lse = at, delta = at + query_block;
    }
};

template <class T> void load_queries(const Backward<T>& g, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = g.tile.dim, stride = g.tile.p.heads * dim, row = at.b * g.tile.p.q_len + at.q0;
    const T* q = g.qkv_q + row * g.tile.width + at.h * dim;
    const T *dout = g.dout + row * stride + at.h * dim, *o = g.o + row * stride + at.h * dim;
    load(q, g.tile.width, at.rows, dim, A(g.tile.p.scale), g.query);
    load_transposed(q, g.tile.width, at.rows, dim, A(g.tile.p.scale), g.query_t, query_block);
    load(dout, stride, at.rows, dim, A(1), g.dout_rows);
    load_transposed(dout, stride, at.rows, dim, A(1), g.dout_t, query_block);
    row_fill(g.dq, at.rows * dim, A(0));
    const A* stat = g.stats + ((at.b * g.tile.p.heads + at.h) * g.tile.p.q_len + at.q0) * 2;
    for (int64_t i = 0; i < at.rows; ++i) {
        g.lse[i] = stat[2 * i];
        A sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < dim; ++d) sum += g.dout_rows[i * dim + d] * A(o[i * stride + d]);
        g.delta[i] = sum;
    }
}

// From scores to the dropped-out weights P, and from dP to the gradient of the scores, P (dP - delta), in place. One
// row per key: what a key sees of the block's queries is a tail.
template <class T> void weight_gradients(const Backward<T>& g, const Block& at) {
    using A = Acc<T>;
    const bool dropout = g.tile.p.dropout > 0;
    if (dropout) dropout_mask(g.tile, at, 1, query_block, g.keep);
    for (int64_t j = 0; j < at.keys; ++j) {
        A *w = g.weights + j * query_block, *ds = g.dscores + j * query_block;
        const A* keep = g.keep + j * query_block;
        const int64_t hidden = g.tile.p.causal ? (g.tile.p.k_start + at.k0 + j) - (g.tile.p.q_start + at.q0) : 0;
        const int64_t from = std::clamp(hidden, int64_t(0), at.rows);
        row_fill(w, from, A(0));
        row_fill(ds, from, A(0));
        if (dropout) {
#pragma omp simd
            for (int64_t i = from; i < at.rows; ++i) {
                const A weight = exp_negative(w[i] - g.lse[i]);
                ds[i] = weight * (ds[i] * keep[i] - g.delta[i]);
                w[i] = weight * keep[i];
            }
        } else {
#pragma omp simd
            for (int64_t i = from; i < at.rows; ++i) {
                w[i] = exp_negative(w[i] - g.lse[i]);
                ds[i] = w[i] * (ds[i] - g.delta[i]);
            }
        }
    }
}

template <class T> void attend_backward(const Backward<T>& g, Block at) {
    using A = Acc<T>;
    const int64_t dim = g.tile.dim, ld = query_block, rows = at.rows;
    load_queries(g, at);
    const int64_t limit = g.tile.visible(at.q0 + rows - 1, 0, g.tile.p.k_len);
    for (at.k0 = 0; at.k0 < limit; at.k0 += g.tile.key_block) {
        at.keys = std::min(g.tile.key_block, limit - at.k0);
        const int64_t n = at.keys, offset = at.k0 * dim;
        blas::gemm(false, false, n, rows, dim, A(1), g.keys + offset, dim, g.query_t, ld, A(0), g.weights, ld);
        blas::gemm(false, false, n, rows, dim, A(1), g.values + offset, dim, g.dout_t, ld, A(0), g.dscores, ld);
        weight_gradients(g, at);
        blas::gemm(false, false, n, dim, rows, A(1), g.weights, ld, g.dout_rows, dim, A(1), g.dv + offset, dim);
        blas::gemm(false, false, n, dim, rows, A(1), g.dscores, ld, g.query, dim, A(1), g.dk + offset, dim);
        blas::gemm(true, false, rows, dim, n, A(1), g.dscores, ld, g.keys + offset, dim, A(1), g.dq, dim);
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
NN_KERNEL(attention_backward, "dqkv_q:rw dqkv_k:rw qkv_q:r qkv_k:r o:r do:r stats:r", nn_attention_params);

}  // namespace
}  // namespace nn::NN_ISA
