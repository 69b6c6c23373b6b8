// Attention over a query tile and a key tile, by online softmax: the output of earlier keys is
// rescaled when a query's maximum grows (Milakov and Gimelshein, arXiv:1805.02867).
#include "kernels/cpu/attention.h"

#include "kernels/cpu/attention_units.h"
#include "kernels/math/exp.h"
#include "kernels/math/log.h"

namespace nn::NN_TARGET {
namespace {

template <class T> struct Forward {
    using A = Acc<T>;
    Tile tile;
    T* o;
    A *acc, *stats;
    const T *qkv_q, *qkv_k, *bias;
    DistanceBias<A> by_distance;
    products::MultiplyFn units;
    // Scratch, with heads of padded(dim): a block's weights (key_block, query_block), running
    // output (rows, dim), maxima and sums. With units also the weights rounded, else keys and
    // values (k_len, dim) and the queries of the block (rows, dim) and transposed (dim,
    // query_block).
    A *keys, *values, *query, *query_t, *weights, *out, *m, *l;
    T* rounded;

    Forward(const KernelCall& call, Scratch& scratch)
        : tile{call.get<nn_attention_params>(),
               {call, 5, call.get<nn_attention_params>().mask_dtype}},
          o(call.operand<T>(0)),
          acc(call.operand<A>(1)),
          stats(call.operand<A>(2)),
          qkv_q(call.input<T>(3)),
          qkv_k(call.input<T>(4)),
          bias(call.input<T>(6)),
          units(units_for<T>(tile.dim)) {
        tile.uses_hidden = units;
        const int64_t keys_size = units ? 0 : tile.p.k_len * tile.ld;
        const int64_t rows_size = query_block * tile.ld, loaded = units ? 0 : rows_size;
        const int64_t block = query_block * tile.key_block;
        const int64_t distances = bias ? DistanceBias<A>::size(tile) : 0;
        A* at = scratch.get<A>(2 * keys_size + 2 * loaded + rows_size + 2 * block +
                               2 * query_block + distances);
        for (A** array : {&query, &query_t}) *array = at, at += loaded;
        out = at, at += rows_size;
        for (A** array : {&m, &l}) *array = at, at += query_block;
        for (A** array : {&keys, &values}) *array = at, at += keys_size;
        weights = at;
        rounded = reinterpret_cast<T*>(at + block);
        by_distance.values = at + 2 * block;
    }
    const T* query_at(const Block& at) const {
        return qkv_q + (at.b * tile.p.q_len + at.q0) * tile.q_width + at.h * tile.dim;
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
    const int64_t dim = f.tile.dim, ld = f.tile.ld;
    if (!f.units) {
        load(f.query_at(at), f.tile.q_width, at.rows, dim, A(f.tile.p.scale), f.query);
        transpose(f.query, ld, at.rows, at.lanes, f.query_t);
    }
    row_fill(f.m, at.lanes, -std::numeric_limits<A>::infinity());
    row_fill(f.l, at.lanes, A(0));
    if (f.tile.p.first) return row_fill(f.out, at.rows * ld, A(0));
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
        const Range lanes = at.seen(f.tile, j);
        A *w = f.weights + j * query_block, *largest = shift + lanes.begin;
        at.mask(f.tile, j, lanes, none, w);
        w += lanes.begin;
        simd_for(lanes.end - lanes.begin,
                 [=](int64_t i) { largest[i] = w[i] > largest[i] ? w[i] : largest[i]; });
    }
    simd_for(at.lanes, [&](int64_t i) {
        const A m = f.m[i];
        f.m[i] = shift[i];
        shift[i] = shift[i] == none ? A(0) : shift[i];  // nothing seen yet
        keep[i] = exp_negative(m - shift[i]);
    });
}

// Turns the scores of a block into unnormalised weights; rescales m, l and the running output.
template <class T> void online_softmax(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    alignas(64) A shift[query_block], keep[query_block];
    new_maxima(f, at, shift, keep);
    simd_for(at.lanes, [&](int64_t i) { f.l[i] *= keep[i]; });
    for (int64_t j = 0; j < at.keys; ++j) {
        const Range lanes = at.seen(f.tile, j);
        const A* subtract = shift + lanes.begin;
        A *w = f.weights + j * query_block + lanes.begin, *sum = f.l + lanes.begin;
        simd_for(lanes.end - lanes.begin, [=](int64_t i) {
            w[i] = exp_negative(w[i] - subtract[i]);
            sum[i] += w[i];
        });
    }
    const int64_t dim = f.tile.dim;
    for (int64_t i = 0; i < at.rows; ++i) {
        A* out = f.out + i * f.tile.ld;
        const A factor = keep[i];
        if (factor != A(1)) simd_for(dim, [=](int64_t d) { out[d] *= factor; });
    }
}

template <class T> void drop_weights(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    alignas(64) uint8_t keep[max_key_block * query_block];
    dropout_mask(f.tile, at, keep);
    const A scale = A(1 / (1 - f.tile.p.dropout));
    for (int64_t j = 0; j < at.keys; ++j) {
        const Range lanes = at.seen(f.tile, j);
        A* const w = f.weights + j * query_block + lanes.begin;
        const uint8_t* const kept = keep + j * query_block + lanes.begin;
        simd_for(std::min(lanes.end, at.rows) - lanes.begin,
                 [=](int64_t i) { w[i] *= kept[i] ? scale : A(0); });
    }
}

template <class T> void finish_block(const Forward<T>& f, const Block& at) {
    using A = Acc<T>;
    const int64_t dim = f.tile.dim, stride = f.tile.p.heads * dim;
    A* stat = f.stat(at);
    for (int64_t i = 0; i < at.rows; ++i) {
        const A lse = f.l[i] > 0 ? f.m[i] + math::log(f.l[i]) : A(0);
        stat[2 * i] = f.tile.p.last ? lse : f.m[i];
        stat[2 * i + 1] = f.tile.p.last ? A(1) : f.l[i];
    }
    if (!f.tile.p.last)
        return store(f.out, A(1), true, f.acc + f.out_offset(at), stride, at.rows, dim);
    for (int64_t i = 0; i < at.rows; ++i) {
        A* out = f.out + i * f.tile.ld;
        const A inverse = f.l[i] > 0 ? A(1) / f.l[i] : A(0);
        simd_for(dim, [=](int64_t d) { out[d] *= inverse; });
    }
    store(f.out, A(1), true, f.o + f.out_offset(at), stride, at.rows, dim);
}

// scores = scale k q
template <class T> void multiply_keys(const Forward<T>& f, const Block& at) {
    const int64_t dim = f.tile.dim;
    if constexpr (std::is_same_v<T, bf16>)
        if (f.units) {
            const UnitProduct product{f.units, float(f.tile.p.scale)};
            const T* keys = f.tile.keys(f.qkv_k, at);
            return product(at.keys, at.rows, dim, {keys, f.tile.kv_width},
                           {f.query_at(at), f.tile.q_width, true}, f.weights, query_block);
        }
    scores_of(f.tile, at, f.keys, f.query_t, f.weights);
}

// out += weights v
template <class T> void add_values(const Forward<T>& f, const Block& at) {
    if constexpr (std::is_same_v<T, bf16>)
        if (f.units) {
            const int64_t dim = f.tile.dim;
            row_convert(f.weights, at.keys * query_block, f.rounded);
            const UnitProduct product{f.units, 1, true};
            return product(at.rows, dim, at.keys, {f.rounded, query_block, true},
                           {f.tile.values(f.qkv_k, at), f.tile.kv_width}, f.out, f.tile.ld);
        }
    add_by_query(f.tile, at, f.weights, f.values, f.out);
}

template <class T> void attend(const Forward<T>& f, Block at) {
    const int64_t limit = f.tile.visible(at.q0 + at.rows - 1);
    start_block(f, at);
    if (f.bias && at.q0 == 0) f.by_distance.load(f.tile, f.bias, at.h);
    for (at.k0 = f.tile.first_key(at.q0); at.k0 < limit; at.k0 += f.tile.key_block) {
        at.keys = std::min(f.tile.key_block, limit - at.k0);
        multiply_keys(f, at);
        if (f.bias) f.by_distance.add(f.tile, at, f.weights);
        online_softmax(f, at);
        if (f.tile.p.dropout > 0) drop_weights(f, at);
        add_values(f, at);
    }
    finish_block(f, at);
}

void attention(const KernelCall& call) {
    static thread_local Scratch scratch;
    visit_float(call.dtype, [&]<class T>(T*) {
        const Forward<T> f(call, scratch);
        for (int64_t i = 0; i < f.tile.p.batch * f.tile.p.kv_heads; ++i)
            attend_head(f, i, [&](const Block& at) { attend(f, at); });
    });
}

NN_IMPLEMENT(attention);

}  // namespace
}  // namespace nn::NN_TARGET
