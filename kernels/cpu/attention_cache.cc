// Attention of new tokens over a cache of keys and values, for text generation. A few are bound by
// reading the cache, which is contiguous for each head; more are computed by products of matrices.
#include "kernels/params/attention_cache.h"

#include "kernels/blas.h"
#include "kernels/cpu/row.h"
#include "kernels/relative_bias.h"

namespace nn::NN_TARGET {
namespace {

// The position of sequence b's new tokens in the cache; -1, and the call fails, if they do not fit.
int64_t start_of(const KernelCall& call, int64_t b) {
    const auto& p = call.get<nn_cache_params>();
    const int64_t at = Indices(call, 2, p.start_dtype)[b];
    if (at >= 0 && at <= p.context - p.len) return at;
    call.fail("%lld tokens from position %lld on do not fit into a cache of %lld", (long long)p.len,
              (long long)at, (long long)p.context);
    return -1;
}

template <class T> void write_tile(const KernelCall& call) {
    const auto& p = call.get<nn_cache_params>();
    T* cache = call.operand<T>(0);
    const T* qkv = call.input<T>(1);
    const int64_t dim = p.head_dim, width = (p.heads + 2 * p.kv_heads) * dim;
    for (int64_t b = 0; b < p.batch; ++b) {
        const int64_t at = start_of(call, b);
        if (at < 0) continue;
        for (int64_t h = 0; h < 2 * p.kv_heads; ++h) {  // keys, then values
            T* to = cache + ((b * 2 * p.kv_heads + h) * p.context + at) * dim;
            const T* from = qkv + b * p.len * width + (p.heads + h) * dim;
            for (int64_t t = 0; t < p.len; ++t, to += dim, from += width)
                row_convert(from, dim, to);
        }
    }
}

// T5's bias of the scores: the bucket of each distance, and the values (buckets, heads), or none.
template <class T> struct CachedBias {
    const int32_t* buckets;
    const T* values;
    int64_t heads;

    CachedBias(const KernelCall& call, const nn_cache_params& p, Scratch& scratch)
        : buckets(nullptr), values(call.input<T>(4)), heads(p.heads) {
        if (!values) return;
        const RelativeBuckets all = relative_buckets(p.buckets, p.max_distance, true);
        int32_t* const bucket = scratch.get<int32_t>(p.context);
        for (int64_t i = 0; i < p.context; ++i) bucket[i] = all.of(i);
        buckets = bucket;
    }
    // weights (keys) = the bias of head h for keys of which the last is at distance 0.
    void load(int64_t h, int64_t keys, Acc<T>* weights) const {
        if (!values) return row_fill(weights, keys, Acc<T>(0));
        for (int64_t j = 0; j < keys; ++j)
            weights[j] = Acc<T>(values[buckets[keys - 1 - j] * heads + h]);
    }
    // Adds it to the scores (keys, lanes) of `rows` queries, of which the first is `at` after the
    // first key; later keys are hidden.
    void add(int64_t h, int64_t at, int64_t keys, int64_t rows, int64_t lanes, Acc<T>* s) const {
        for (int64_t j = 0; j < keys && values; ++j)
            for (int64_t i = std::max<int64_t>(0, j - at); i < rows; ++i)
                s[j * lanes + i] += Acc<T>(values[buckets[at + i - j] * heads + h]);
    }
};

constexpr int64_t query_block = 16, few_queries = 4;  // a block: the lanes of a vector
constexpr int64_t key_block = 512;                    // of keys that are converted to A at once

// Up to query_block queries of a head, whose positions begin with `at`, over the cache's keys and
// values from `first` on. Scores and weights are (keys, query_block).
template <class T> struct QueryBlock {
    using A = Acc<T>;
    const nn_cache_params& p;
    int64_t h, rows, at;
    int64_t first = p.window ? std::max<int64_t>(0, at + 1 - p.window) : 0;
    int64_t keys = at + rows - first;

    int64_t scratch_size() const {
        const int64_t converted = std::is_same_v<T, A> ? 0 : key_block * p.head_dim;
        return keys * query_block + 2 * p.head_dim * query_block + converted;
    }
    // Calls each(j, count, rows) for blocks of the rows of x (keys, head_dim) in A, which are in
    // `room` unless x is of this type.
    template <class F> void each_block(const T* x, A* room, F each) const {
        for (int64_t j = 0; j < keys; j += key_block) {
            const int64_t count = std::min(key_block, keys - j);
            const T* const part = x + j * p.head_dim;
            if constexpr (std::is_same_v<T, A>) {
                each(j, count, part);
            } else {
                row_convert(part, count * p.head_dim, room);
                each(j, count, room);
            }
        }
    }
    // Hides those of the keys [begin, end) that are after a query or before its window.
    void mask(int64_t begin, int64_t end, A* weights) const {
        for (int64_t j = begin; j < end; ++j)
            for (int64_t i = 0; i < rows; ++i) {
                const int64_t distance = at + i - (first + j);
                if (distance < 0 || (p.window && distance >= p.window))
                    weights[j * query_block + i] = -std::numeric_limits<A>::infinity();
            }
    }
    // Scores to weights; inverse (query_block) = 1 / their sums.
    void softmax(A* weights, A* inverse) const {
        alignas(64) A top[query_block], sum[query_block] = {};
        row_fill(top, query_block, -std::numeric_limits<A>::infinity());
        for (int64_t j = 0; j < keys; ++j) {
            const A* w = weights + j * query_block;
            simd_for(query_block, [&](int64_t i) { top[i] = w[i] > top[i] ? w[i] : top[i]; });
        }
        for (int64_t j = 0; j < keys; ++j) {
            A* w = weights + j * query_block;
            simd_for(query_block, [&](int64_t i) { sum[i] += w[i] = exp_negative(w[i] - top[i]); });
        }
        simd_for(query_block, [&](int64_t i) { inverse[i] = 1 / sum[i]; });
    }
    // q: the first query, rows `width` apart; k, v: the head's first key and value in the cache.
    void attend(const T* q, int64_t width, const T* k, const T* v, const CachedBias<T>& bias,
                A* scratch, T* o) const {
        const int64_t dim = p.head_dim;
        A *const query_t = scratch, *const out = query_t + dim * query_block;
        A *const weights = out + dim * query_block, *const room = weights + keys * query_block;
        for (int64_t d = 0; d < dim; ++d)
            for (int64_t i = 0; i < query_block; ++i)
                query_t[d * query_block + i] = i < rows ? A(q[i * width + d]) : A(0);
        each_block(k + first * dim, room, [&](int64_t j, int64_t count, const A* part) {
            blas::gemm(false, false, count, query_block, dim, A(p.scale), part, dim, query_t,
                       query_block, A(0), weights + j * query_block, query_block);
        });
        bias.add(h, at - first, keys, rows, query_block, weights);
        mask(at - first, keys, weights);
        if (p.window) mask(0, std::min(rows, at - first), weights);
        alignas(64) A inverse[query_block];
        softmax(weights, inverse);
        each_block(v + first * dim, room, [&](int64_t j, int64_t count, const A* part) {
            blas::gemm(true, false, query_block, dim, count, A(1), weights + j * query_block,
                       query_block, part, dim, A(j > 0), out, dim);
        });
        for (int64_t i = 0; i < rows; ++i)
            simd_for(dim, [&](int64_t d) {
                o[i * p.heads * dim + d] = T(out[i * dim + d] * inverse[i]);
            });
    }
};

// The same for one query, without a copy of the keys and values.
template <class T>
void attend_one(const QueryBlock<T>& at, const T* query, const T* k, const T* v,
                const CachedBias<T>& bias, Acc<T>* scratch, T* o) {
    const int64_t dim = at.p.head_dim, keys = at.keys;
    Acc<T>*const q = scratch, *const out = q + dim, *const weights = out + dim;
    row_convert(query, dim, q);
    bias.load(at.h, keys, weights);
    k += at.first * dim, v += at.first * dim;
    for (int64_t j = 0; j < keys; j += 4)
        add_dots(q, k + j * dim, dim, std::min<int64_t>(4, keys - j), dim, Acc<T>(at.p.scale),
                 weights + j, j + 4 < keys);
    const Acc<T> inverse = 1 / row_exp(weights, keys, row_max(weights, keys), weights);
    row_fill(out, dim, Acc<T>(0));
    for (int64_t j = 0; j < keys; j += 4)
        add_rows(weights + j, v + j * dim, dim, std::min<int64_t>(4, keys - j), dim, inverse, out);
    row_convert(out, dim, o);
}

void cache_write(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) { write_tile<T>(call); });
}

// Writes the new keys and values, then attends. Workers share the loop over blocks of queries and
// heads; a head of a long text reads 0.5 MB.
void attention_cached(const KernelCall& call) {
    const auto& p = call.get<nn_cache_params>();
    cache_write(call);
    for (int64_t b = 0; b < p.batch; ++b)
        if (start_of(call, b) < 0) return;
    const Indices start(call, 2, p.start_dtype);
    const int64_t dim = p.head_dim, width = (p.heads + 2 * p.kv_heads) * dim;
    const int64_t matrix = p.context * dim, block = p.len > few_queries ? query_block : 1;
    const int64_t blocks = (p.len + block - 1) / block;
    visit_float(call.dtype, [&]<class T>(T*) {
        const T *cache = call.input<T>(0), *qkv = call.input<T>(1);
        T* const o = call.operand<T>(3);
        static thread_local Scratch of_bias;
        const CachedBias<T> bias(call, p, of_bias);
        parallel_for(p.batch * blocks * p.heads, [=, &p](int64_t begin, int64_t end) {
            static thread_local Scratch scratch;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t h = i % p.heads, b = i / p.heads / blocks;
                const int64_t t = i / p.heads % blocks * block, row = b * p.len + t;
                const QueryBlock<T> queries{p, h, std::min(block, p.len - t), start[b] + t};
                const T* k = cache + (b * 2 * p.kv_heads + h / (p.heads / p.kv_heads)) * matrix;
                const T *q = qkv + row * width + h * dim, *v = k + p.kv_heads * matrix;
                Acc<T>* const room =
                    scratch.get<Acc<T>>(block > 1 ? queries.scratch_size() : p.context + 2 * dim);
                T* const out = o + (row * p.heads + h) * dim;
                if (block > 1)
                    queries.attend(q, width, k, v, bias, room, out);
                else
                    attend_one(queries, q, k, v, bias, room, out);
            }
        });
    });
}

NN_IMPLEMENT(cache_write, attention_cached);

}  // namespace
}  // namespace nn::NN_TARGET
