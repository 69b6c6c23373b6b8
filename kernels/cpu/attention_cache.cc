// Attention of a few new tokens over a cache of keys and values, for text generation. It is bound
// by reading the cache, which is contiguous for each head.
#include "kernels/params/attention_cache.h"

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
};

// out (dim) = softmax(scale q k^T + weights) v over `keys` keys.
template <class T>
void attend(const Acc<T>* q, const T* k, const T* v, int64_t keys, int64_t dim, Acc<T> scale,
            Acc<T>* weights, Acc<T>* out) {
    for (int64_t j = 0; j < keys; j += 4)
        add_dots(q, k + j * dim, dim, std::min<int64_t>(4, keys - j), dim, scale, weights + j,
                 j + 4 < keys);
    const Acc<T> inverse = 1 / row_exp(weights, keys, row_max(weights, keys), weights);
    row_fill(out, dim, Acc<T>(0));
    for (int64_t j = 0; j < keys; j += 4)
        add_rows(weights + j, v + j * dim, dim, std::min<int64_t>(4, keys - j), dim, inverse, out);
}

void cache_write(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) { write_tile<T>(call); });
}

// Writes the new keys and values, then attends. Workers share the loop over queries and heads; a
// head of a long text reads 0.5 MB.
void attention_cached(const KernelCall& call) {
    const auto& p = call.get<nn_cache_params>();
    cache_write(call);
    for (int64_t b = 0; b < p.batch; ++b)
        if (start_of(call, b) < 0) return;
    const Indices start(call, 2, p.start_dtype);
    const int64_t dim = p.head_dim, width = (p.heads + 2 * p.kv_heads) * dim;
    const int64_t matrix = p.context * dim;
    visit_float(call.dtype, [&]<class T>(T*) {
        const T *cache = call.input<T>(0), *qkv = call.input<T>(1);
        T* const o = call.operand<T>(3);
        static thread_local Scratch of_bias;
        const CachedBias<T> bias(call, p, of_bias);
        parallel_for(p.batch * p.len * p.heads, [=, &p](int64_t begin, int64_t end) {
            static thread_local Scratch scratch;
            Acc<T>* const q = scratch.get<Acc<T>>(p.context + 2 * dim);
            Acc<T>*const out = q + dim, *const weights = out + dim;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t h = i % p.heads, row = i / p.heads, b = row / p.len;
                const int64_t seen = start[b] + row % p.len + 1;
                const T* k = cache + (b * 2 * p.kv_heads + h / (p.heads / p.kv_heads)) * matrix;
                const int64_t first = p.window ? std::max<int64_t>(0, seen - p.window) : 0;
                row_convert(qkv + row * width + h * dim, dim, q);
                bias.load(h, seen - first, weights);
                attend(q, k + first * dim, k + p.kv_heads * matrix + first * dim, seen - first, dim,
                       Acc<T>(p.scale), weights, out);
                row_convert(out, dim, o + i * dim);
            }
        });
    });
}

NN_IMPLEMENT(cache_write, attention_cached);

}  // namespace
}  // namespace nn::NN_TARGET
