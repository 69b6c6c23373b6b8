// Attention of a few new tokens over a cache of keys and values, for text generation. A block
// computes one query of one head. Its groups of threads (a warp, or as many threads as a key needs
// at 16 bytes each) share the keys; each has a running maximum, sum and output, merged at the
// end. (To be measured: several blocks for long caches.)
#include "kernels/cuda/attention.cuh"
#include "kernels/math/exp.h"
#include "kernels/params/attention_cache.h"

namespace nn::NN_TARGET {
namespace {

// The position of sequence b's new tokens in the cache; -1, and the call fails, if they do not fit.
__device__ inline int64_t start_of(const nn_cache_params& p, const void* start, int64_t b,
                                   Fault* fault) {
    const int64_t at = load_index(start, Dtype(p.start_dtype), b);
    if (at >= 0 && at <= p.context - p.len) return at;
    report(fault, at);
    return -1;
}

Fault* expect_start(const KernelCall& call) {
    const auto& p = call.get<nn_cache_params>();
    return expect(call, "%lld tokens from position %%lld on do not fit into a cache of %lld",
                  (long long)p.len, (long long)p.context);
}

// A thread copies one U of the new keys and values; p.head_dim is in units of U.
template <class U>
__global__ void __launch_bounds__(attention_threads)
    cache_write_kernel(U* cache, const U* qkv, const void* start, nn_cache_params p, Fault* fault) {
    const int64_t heads = 2 * p.kv_heads, i = int64_t(blockIdx.x) * attention_threads + threadIdx.x;
    if (i >= p.batch * p.len * heads * p.head_dim) return;
    const int64_t d = i % p.head_dim, h = i / p.head_dim % heads;
    const int64_t t = i / (p.head_dim * heads) % p.len, b = i / (p.head_dim * heads * p.len);
    const int64_t at = start_of(p, start, b, fault);
    if (at < 0) return;
    const int64_t width = (p.heads + heads) * p.head_dim;
    cache[((b * heads + h) * p.context + at + t) * p.head_dim + d] =
        qkv[(b * p.len + t) * width + (p.heads + h) * p.head_dim + d];
}

template <class U> void run_write(const KernelCall& call, nn_cache_params p) {
    const int64_t n = p.batch * p.len * 2 * p.kv_heads * p.head_dim;
    if (n == 0) return;
    launch(call, {blocks_for(n, attention_threads), attention_threads}, cache_write_kernel<U>,
           call.operand<U>(0), call.input<U>(1), call.input<void>(2), p, expect_start(call));
}

void cache_write(const KernelCall& call) {
    auto p = call.get<nn_cache_params>();
    const int64_t size = int64_t(dtype_size(call.dtype)), lanes = 16 / size;
    if (p.head_dim % lanes == 0 && all_aligned(call.operands[0], call.operands[1])) {
        p.head_dim /= lanes;
        return run_write<uint4>(call, p);
    }
    switch (size) {
        case 2: return run_write<uint16_t>(call, p);
        case 4: return run_write<uint32_t>(call, p);
        default: return run_write<uint64_t>(call, p);
    }
}

// T5's bias of the scores, (buckets, heads), or none.
template <class T> struct CachedBias {
    const T* values;
    RelativeBuckets buckets;
    __device__ Acc<T> of(int64_t distance, int64_t h, int64_t heads) const {
        return values ? Acc<T>(number(values[buckets.of(distance) * heads + h])) : Acc<T>(0);
    }
};

// Attends to keys group, group + groups, ..., by a group of `lanes` neighbouring threads;
// bias_of(distance) is added to a score. All threads of the block must call it. The output (dim) is
// in registers if each thread has `width` > 1 elements of it, else in shared memory, where a thread
// accesses only its own elements.
template <int width, class T, class B>
__device__ void attend(const Acc<T>* q, const T* k, const T* v, int64_t keys, int64_t dim,
                       unsigned lanes, B bias_of, Acc<T>* out, Acc<T>* maximum, Acc<T>* sum) {
    using A = Acc<T>;
    const unsigned lane = threadIdx.x % lanes;
    const int64_t group = threadIdx.x / lanes, groups = attention_threads / lanes,
                  first = lane * width;
    A m = -A(INFINITY), l = 0, x[width], held[width] = {};
    for (int64_t d = first; d < dim; d += lanes * width)
        for (int e = 0; e < width; ++e) out[d + e] = 0;
    for (int64_t j = group; j - group < keys; j += groups) {  // as often for each group
        A score = 0;
        for (int64_t d = first; d < dim && j < keys; d += lanes * width) {
            load_pack<width>(k + j * dim + d, x);
            for (int e = 0; e < width; ++e) score += q[d + e] * x[e];
        }
        score = sum_lanes(score, lanes);
        if (j >= keys) continue;
        score += bias_of(keys - 1 - j);
        const A top = Max()(m, score), keep = m == top ? A(1) : exp_negative(m - top);
        const A weight = exp_negative(score - top);
        l = l * keep + weight;
        for (int64_t d = first; d < dim; d += lanes * width) {
            load_pack<width>(v + j * dim + d, x);
            A* sums = width > 1 ? held : out + d;
            for (int e = 0; e < width; ++e) sums[e] = sums[e] * keep + weight * x[e];
        }
        m = top;
    }
    if (width > 1)
        for (int e = 0; e < width; ++e) out[first + e] = held[e];
    *maximum = m, *sum = l;
}

// blockIdx.x = (b * len + t) * heads + h. lanes * width = dim, or width is 1. Shared memory: the
// scaled query, and an output for each group.
template <class T, int width>
__global__ void __launch_bounds__(attention_threads)
    attention_cached_kernel(T* o, const T* qkv, const T* cache, const void* start,
                            nn_cache_params p, CachedBias<T> bias, unsigned lanes, Fault* fault) {
    using A = Acc<T>;
    __shared__ A maxima[attention_threads], sums[attention_threads];
    const int64_t dim = p.head_dim, h = blockIdx.x % p.heads, token = blockIdx.x / p.heads;
    const int64_t b = token / p.len, t = token % p.len, at = start_of(p, start, b, fault);
    if (at < 0) return;  // all threads
    A *q = dynamic_shared<A>(), *outs = q + dim;
    const int64_t qkv_width = (p.heads + 2 * p.kv_heads) * dim;
    for (int64_t d = threadIdx.x; d < dim; d += attention_threads)
        q[d] = number(qkv[token * qkv_width + h * dim + d]) * A(p.scale);
    __syncthreads();
    const int64_t kv = h / (p.heads / p.kv_heads), matrix = p.context * dim;
    const int64_t seen = at + t + 1, first = p.window ? larger<int64_t>(0, seen - p.window) : 0;
    const T* k = cache + (b * 2 * p.kv_heads + kv) * matrix + first * dim;
    const unsigned group = threadIdx.x / lanes, groups = attention_threads / lanes;
    A m, l;
    const auto bias_of = [&](int64_t distance) { return bias.of(distance, h, p.heads); };
    attend<width>(q, k, k + p.kv_heads * matrix, seen - first, dim, lanes, bias_of,
                  outs + group * dim, &m, &l);
    if (threadIdx.x % lanes == 0) maxima[group] = m, sums[group] = l;
    __syncthreads();
    A top = maxima[0], total = 0;
    for (unsigned w = 1; w < groups; ++w) top = Max()(top, maxima[w]);
    const auto keep = [&](unsigned w) {
        return maxima[w] == top ? A(1) : exp_negative(maxima[w] - top);
    };
    for (unsigned w = 0; w < groups; ++w) total += sums[w] * keep(w);
    const A inverse = A(1) / total;
    for (int64_t d = threadIdx.x; d < dim; d += attention_threads) {
        A sum = 0;
        for (unsigned w = 0; w < groups; ++w) sum += outs[w * dim + d] * keep(w);
        o[(token * p.heads + h) * dim + d] = stored<T>(sum * inverse);
    }
}

// Writes the new keys and values, then attends.
void attention_cached(const KernelCall& call) {
    cache_write(call);
    if (call.has_failed()) return;
    const auto& p = call.get<nn_cache_params>();
    const int64_t queries = p.batch * p.len * p.heads;
    if (queries == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        const T *cache = call.input<T>(0), *values = call.input<T>(4);
        const CachedBias<T> bias = {
            values, values ? relative_buckets(p.buckets, p.max_distance, true) : RelativeBuckets{}};
        const bool wide = lanes_for<T>(p.head_dim) && aligned(cache);
        const unsigned lanes = wide ? lanes_for<T>(p.head_dim) : 32;
        const size_t shared = size_t((1 + attention_threads / lanes) * p.head_dim) * sizeof(Acc<T>);
        launch(call, {blocks_for(queries, 1), attention_threads, shared},
               wide ? attention_cached_kernel<T, lanes16<T>> : attention_cached_kernel<T, 1>,
               call.operand<T>(3), call.input<T>(1), cache, call.input<void>(2), p, bias, lanes,
               expect_start(call));
    });
}

NN_IMPLEMENT(cache_write, attention_cached);

}  // namespace
}  // namespace nn::NN_TARGET
