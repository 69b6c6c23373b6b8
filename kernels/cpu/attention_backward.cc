// The gradient of attention over a query tile and a key tile. It recomputes the weights from the
// log-sum-exp (Dao et al., arXiv:2205.14135).
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_units.h"
#include "kernels/math/exp.h"

namespace nn::NN_TARGET {
namespace {

template <class T> struct Backward {
    using A = Acc<T>;
    Tile tile;
    T *dqkv_q, *dqkv_k;
    const T *qkv_q, *qkv_k, *o, *dout;
    const A* stats;
    const T* bias;
    A* dbias;
    DistanceBias<A> by_distance, gradients;  // of a head: the bias, and its gradient
    products::MultiplyFn units;
    // Scratch, with heads of padded(dim): gradients of keys and values (k_len, dim); dq of a block
    // (rows, dim); weights and their gradients (key_block, query_block); the log-sum and
    // rowsum(dout o) of its rows. With units also weights and gradients rounded, else keys and
    // values (k_len, dim), and queries and dout of the block (rows, dim) and transposed (dim,
    // query_block).
    A *keys, *values, *dk, *dv, *query, *query_t, *dout_rows, *dout_t, *dq, *weights, *dscores,
        *lse, *delta;
    T *rounded, *rounded_dscores;

    Backward(const KernelCall& call, Scratch& scratch)
        : tile{call.get<nn_attention_params>(),
               {call, 7, call.get<nn_attention_params>().mask_dtype}},
          dqkv_q(call.operand<T>(0)),
          dqkv_k(call.operand<T>(1)),
          qkv_q(call.input<T>(2)),
          qkv_k(call.input<T>(3)),
          o(call.input<T>(4)),
          dout(call.input<T>(5)),
          stats(call.input<A>(6)),
          bias(call.input<T>(8)),
          dbias(call.operand<A>(9)),
          units(units_for<T>(tile.dim)) {
        tile.uses_hidden = units;
        const int64_t keys_size = tile.p.k_len * tile.ld, rows_size = query_block * tile.ld;
        const int64_t block = query_block * tile.key_block, loaded = units ? 0 : keys_size;
        const int64_t distances = bias ? DistanceBias<A>::size(tile) : 0;
        A* at = scratch.get<A>(2 * keys_size + 2 * loaded + 5 * rows_size + 4 * block +
                               2 * query_block + 2 * distances);
        for (A** array : {&query, &query_t, &dout_rows, &dout_t, &dq}) *array = at, at += rows_size;
        for (A** array : {&weights, &dscores}) *array = at, at += block;
        for (T** array : {&rounded, &rounded_dscores})
            *array = reinterpret_cast<T*>(at), at += block;
        for (A** array : {&lse, &delta}) *array = at, at += query_block;
        for (A** array : {&dk, &dv}) *array = at, at += keys_size;
        for (A** array : {&keys, &values}) *array = at, at += loaded;
        by_distance.values = at, gradients.values = at + distances;
    }
    const T* query_at(const Block& at) const {
        return qkv_q + (at.b * tile.p.q_len + at.q0) * tile.q_width + at.h * tile.dim;
    }
    int64_t out_stride() const { return tile.p.heads * tile.dim; }
    int64_t out_offset(const Block& at) const {
        return (at.b * tile.p.q_len + at.q0) * out_stride() + at.h * tile.dim;
    }
};

template <class T> void load_queries(const Backward<T>& g, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = g.tile.dim, ld = g.tile.ld, stride = g.out_stride();
    const T *q = g.query_at(at), *dout = g.dout + g.out_offset(at), *o = g.o + g.out_offset(at);
    if (!g.units) {
        load(q, g.tile.q_width, at.rows, dim, A(g.tile.p.scale), g.query);
        transpose(g.query, ld, at.rows, at.lanes, g.query_t);
        load(dout, stride, at.rows, dim, A(1), g.dout_rows);
        transpose(g.dout_rows, ld, at.rows, at.lanes, g.dout_t);
    }
    row_fill(g.dq, at.rows * ld, A(0));
    row_fill(g.lse, at.lanes, A(0));
    row_fill(g.delta, at.lanes, A(0));
    const A* stat = g.stats + ((at.b * g.tile.p.heads + at.h) * g.tile.p.q_len + at.q0) * 2;
    for (int64_t i = 0; i < at.rows; ++i, dout += stride, o += stride) {
        g.lse[i] = stat[2 * i];
        g.delta[i] = simd_sum<A>(dim, [=](int64_t d) { return A(dout[d]) * A(o[d]); });
    }
}

// In place: scores become the weights P, with dropout; dP becomes the gradient of the scores,
// P (dP - delta).
template <class T> void weight_gradients(const Backward<T>& g, const Block& at) {
    using A = Acc<T>;
    const bool dropout = g.tile.p.dropout > 0;
    const A scale = A(1 / (1 - g.tile.p.dropout));
    alignas(64) uint8_t mask[max_key_block * query_block];
    if (dropout) dropout_mask(g.tile, at, mask);
    for (int64_t j = 0; j < at.keys; ++j) {
        const Range range = at.seen(g.tile, j);
        const int64_t begin = range.begin, lanes = range.end - begin, row = j * query_block;
        A *w = g.weights + row + begin, *ds = g.dscores + row + begin;
        const A *lse = g.lse + begin, *delta = g.delta + begin;
        const uint8_t* kept = mask + row + begin;
        if (dropout)
            simd_for(std::min(lanes, at.rows - begin), [=](int64_t i) {
                const A weight = exp_negative(w[i] - lse[i]), keep = kept[i] ? scale : A(0);
                ds[i] = weight * (ds[i] * keep - delta[i]);
                w[i] = weight * keep;
            });
        else
            simd_for(lanes, [=](int64_t i) {
                w[i] = exp_negative(w[i] - lse[i]);
                ds[i] = w[i] * (ds[i] - delta[i]);
            });
        at.mask(g.tile, j, range, A(0), g.weights + row);
        at.mask(g.tile, j, range, A(0), g.dscores + row);
    }
}

// Before the first block of a head.
template <class T> void start_bias(const Backward<T>& g, const Block& at) {
    g.by_distance.load(g.tile, g.bias, at.h);
    row_fill(g.gradients.values, DistanceBias<Acc<T>>::size(g.tile), Acc<T>(0));
}

// Adds the gradients of the scores of a block.
template <class T> void add_bias_gradients(const Backward<T>& g, const Block& at) {
    for (int64_t j = 0; j < at.keys; ++j) {
        const Range lanes = at.seen(g.tile, j);
        const Acc<T>* ds = g.dscores + j * query_block + lanes.begin;
        Acc<T>* sum = g.gradients.of(g.tile, at, j) + lanes.begin;
        simd_for(std::min(lanes.end, at.rows) - lanes.begin, [=](int64_t i) { sum[i] += ds[i]; });
    }
}

// After the last block of a head.
template <class T> void finish_bias(const Backward<T>& g, const Block& at) {
    g.gradients.each(g.tile, [&](Acc<T> sum, int64_t bucket) {
        g.dbias[bucket * g.tile.p.heads + at.h] += sum;
    });
}

// The scores of a block and the gradients of its weights.
template <class T> void multiply_keys(const Backward<T>& g, const Block& at) {
    if constexpr (std::is_same_v<T, bf16>)
        if (g.units) {
            const int64_t n = at.keys, dim = g.tile.dim, width = g.tile.kv_width, ld = query_block;
            const UnitProduct scaled{g.units, float(g.tile.p.scale)}, product{g.units};
            scaled(n, at.rows, dim, {g.tile.keys(g.qkv_k, at), width},
                   {g.query_at(at), g.tile.q_width, true}, g.weights, ld);
            return product(n, at.rows, dim, {g.tile.values(g.qkv_k, at), width},
                           {g.dout + g.out_offset(at), g.out_stride(), true}, g.dscores, ld);
        }
    scores_of(g.tile, at, g.keys, g.query_t, g.weights);
    scores_of(g.tile, at, g.values, g.dout_t, g.dscores);
}

// Adds to the gradients of values, keys and queries. Those of queries, and with units those of
// keys, lack the factor `scale`.
template <class T> void add_gradients(const Backward<T>& g, const Block& at) {
    if constexpr (std::is_same_v<T, bf16>)
        if (g.units) {
            const int64_t n = at.keys, rows = at.rows, dim = g.tile.dim, ld = g.tile.ld;
            const int64_t offset = at.k0 * ld;
            row_convert(g.weights, n * query_block, g.rounded);
            row_convert(g.dscores, n * query_block, g.rounded_dscores);
            const UnitProduct add{g.units, 1, true};
            add(n, dim, rows, {g.rounded, query_block}, {g.dout + g.out_offset(at), g.out_stride()},
                g.dv + offset, ld);
            add(n, dim, rows, {g.rounded_dscores, query_block}, {g.query_at(at), g.tile.q_width},
                g.dk + offset, ld);
            return add(rows, dim, n, {g.rounded_dscores, query_block, true},
                       {g.tile.keys(g.qkv_k, at), g.tile.kv_width}, g.dq, ld);
        }
    add_by_key(g.tile, at, g.weights, g.dout_rows, g.dv);
    add_by_key(g.tile, at, g.dscores, g.query, g.dk);
    add_by_query(g.tile, at, g.dscores, g.keys, g.dq);
}

template <class T> void attend_backward(const Backward<T>& g, Block at) {
    const Tile& tile = g.tile;
    load_queries(g, at);
    if (g.bias && at.q0 == 0) start_bias(g, at);
    const int64_t limit = tile.visible(at.q0 + at.rows - 1);
    for (at.k0 = tile.first_key(at.q0); at.k0 < limit; at.k0 += tile.key_block) {
        at.keys = std::min(tile.key_block, limit - at.k0);
        multiply_keys(g, at);
        if (g.bias) g.by_distance.add(tile, at, g.weights);
        weight_gradients(g, at);
        if (g.bias) add_bias_gradients(g, at);
        add_gradients(g, at);
    }
    T* dq = g.dqkv_q + (at.b * tile.p.q_len + at.q0) * tile.q_width + at.h * tile.dim;
    store(g.dq, Acc<T>(tile.p.scale), tile.p.first_q, dq, tile.q_width, at.rows, tile.dim);
    if (g.bias && at.q0 + at.rows == tile.p.q_len) finish_bias(g, at);
}

void attention_backward(const KernelCall& call) {
    static thread_local Scratch scratch;
    const auto& p = call.get<nn_attention_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        const Backward<T> g(call, scratch);
        const Tile& tile = g.tile;
        const int64_t width = tile.kv_width;
        if (g.bias && p.first_q) row_fill(g.dbias, p.buckets * p.heads, A(0));
        for (int64_t i = 0; i < p.batch * p.kv_heads; ++i) {
            row_fill(g.dk, p.k_len * tile.ld, A(0));
            row_fill(g.dv, p.k_len * tile.ld, A(0));
            attend_head(g, i, [&](const Block& at) { attend_backward(g, at); });
            const int64_t kv = i % p.kv_heads;
            T* rows = g.dqkv_k + i / p.kv_heads * p.k_len * width;
            const A scale = g.units ? A(p.scale) : A(1);  // else it is in the loaded queries
            store(g.dk, scale, p.first_kv, rows + tile.k_column(kv), width, p.k_len, tile.dim);
            store(g.dv, A(1), p.first_kv, rows + tile.v_column(kv), width, p.k_len, tile.dim);
        }
    });
}

NN_IMPLEMENT(attention_backward);

}  // namespace
}  // namespace nn::NN_TARGET
