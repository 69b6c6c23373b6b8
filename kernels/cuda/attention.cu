// Attention and its gradient for any dtype and head size: a warp computes one query (or, for dk and
// dv, one key) in a loop over the other axis. The backward pass recomputes the weights, once for dq
// and once for dk and dv, so that one warp computes each sum, in a fixed order.
#include "kernels/cuda/attention.cuh"
#include "kernels/math/exp.h"

namespace nn::NN_TARGET {
namespace {

constexpr int warps = int(attention_threads) / 32;

// The dot product over the head, in all lanes.
template <class A, class T> __device__ A dot(const A* a, const T* b, int64_t dim) {
    A sum = 0;
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32) sum += a[d] * A(number(b[d]));
    return warp_reduce(sum, Sum());
}
template <class A, class T> __device__ void fetch(const T* from, int64_t dim, A scale, A* to) {
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32) to[d] = A(number(from[d])) * scale;
}
// to[d] += factor * from[d]
template <class A, class T> __device__ void add(const T* from, int64_t dim, A factor, A* to) {
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32) to[d] += factor * A(number(from[d]));
}

// The element of (batch, heads, len) that this warp computes; false past the last.
struct Position {
    int64_t b, h, i;
};
__device__ inline bool my_position(int64_t batch, int64_t heads, int64_t len, Position* at) {
    const int64_t n = int64_t(blockIdx.x) * warps + threadIdx.x / 32;
    *at = {n / (heads * len), n / len % heads, n % len};
    return n < batch * heads * len;
}
Shape shape_for(int64_t rows, int64_t numbers, size_t size) {
    return {blocks_for(rows, warps), attention_threads, size_t(warps * numbers) * size};
}

// Shared memory: the query and the output of each warp.
template <class T>
__global__ void __launch_bounds__(attention_threads)
    attention_kernel(const Tile tile, const Bias<T> bias, T* o, Acc<T>* acc, Acc<T>* stats,
                     const T* qkv_q, const T* qkv_k) {
    using A = Acc<T>;
    Position at;
    if (!my_position(tile.p.batch, tile.p.heads, tile.p.q_len, &at)) return;  // no barriers below
    const int64_t dim = tile.p.head_dim, kv = at.h / tile.group,
                  out_at = tile.out(at.b, at.h, at.i);
    A *q = dynamic_shared<A>() + (threadIdx.x / 32) * 2 * dim, *out = q + dim;
    A* stat = stats + tile.row(at.b, at.h, at.i) * 2;
    fetch(qkv_q + tile.query(at.b, at.h, at.i), dim, A(tile.p.scale), q);
    A m = -A(INFINITY), l = 0;
    if (tile.p.first) {
        for (int64_t d = threadIdx.x % 32; d < dim; d += 32) out[d] = 0;
    } else {
        fetch(acc + out_at, dim, A(1), out);
        m = stat[0], l = stat[1];
    }
    const int64_t keys = tile.visible(at.i);
    for (int64_t j = tile.first_key(at.i); j < keys; ++j) {
        if (tile.hides(at.b, j)) continue;
        const A score = dot(q, qkv_k + tile.key(at.b, kv, j), dim) + bias.of(tile, at.h, at.i, j);
        const A top = Max()(m, score), shift = top == -A(INFINITY) ? A(0) : top;
        const A keep = exp_negative(m - shift), weight = exp_negative(score - shift);
        l = l * keep + weight;
        m = top;
        const A used = tile.p.dropout > 0 ? weight * tile.dropout<A>(at.b, at.h, at.i, j) : weight;
        const T* v = qkv_k + tile.value(at.b, kv, j);
        for (int64_t d = threadIdx.x % 32; d < dim; d += 32)
            out[d] = out[d] * keep + used * A(number(v[d]));
    }
    __syncwarp();  // every lane has read the statistics
    if (threadIdx.x % 32 == 0)
        stat[0] = tile.p.last ? log_sum(m, l) : m, stat[1] = tile.p.last ? A(1) : l;
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32) {
        if (tile.p.last)
            o[out_at + d] = stored<T>(out[d] * inverse_sum(l));
        else
            acc[out_at + d] = out[d];
    }
}

void attention(const KernelCall& call) {
    const auto& p = call.get<nn_attention_params>();
    const int64_t rows = p.batch * p.heads * p.q_len;
    if (rows == 0 || attention_cudnn(call, false) || attention_mma(call)) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        launch(call, shape_for(rows, 2 * p.head_dim, sizeof(A)), attention_kernel<T>,
               tile_of(call, 5), bias_of<T>(call, 6), call.operand<T>(0), call.operand<A>(1),
               call.operand<A>(2), call.input<T>(3), call.input<T>(4));
    });
}

// --- backward ---

template <class T> struct Backward {
    Tile tile;
    T *dqkv_q, *dqkv_k;
    const T *qkv_q, *qkv_k, *o, *dout;
    const Acc<T>* stats;
    Acc<T>* delta;  // rowsum(do o)
    Bias<T> bias;
};

// `lanes` neighbouring threads compute a row; they read do and o in memory order.
template <class T, int width>
__global__ void __launch_bounds__(attention_threads)
    delta_kernel(const Backward<T> g, int64_t rows, unsigned lanes) {
    const nn_attention_params& p = g.tile.p;
    const int64_t n = (int64_t(blockIdx.x) * attention_threads + threadIdx.x) / lanes;
    Acc<T> sum = 0, dout[width], o[width];
    for (int64_t d = threadIdx.x % lanes * width; d < p.head_dim && n < rows; d += lanes * width) {
        load_pack<width>(g.dout + n * p.head_dim + d, dout);
        load_pack<width>(g.o + n * p.head_dim + d, o);
#pragma unroll
        for (int e = 0; e < width; ++e) sum += dout[e] * o[e];
    }
    sum = sum_lanes(sum, lanes);
    if (n >= rows || threadIdx.x % lanes != 0) return;
    const int64_t token = n / p.heads;
    g.delta[g.tile.row(token / p.q_len, n % p.heads, token % p.q_len)] = sum;
}

template <class T> bool run_delta(const KernelCall& call, const Backward<T>& g, int64_t rows) {
    const unsigned packs = lanes_for<T>(g.tile.p.head_dim);
    const bool wide = packs && all_aligned(g.dout, g.o);
    const unsigned lanes = wide ? packs : 32;
    return launch(call, {blocks_for(rows * lanes, attention_threads), attention_threads},
                  wide ? delta_kernel<T, lanes16<T>> : delta_kernel<T, 1>, g, rows, lanes);
}

// The weight of a key for a query, with dropout, and the gradient of its score, without the scale.
template <class A> struct Pair { A weight, dscore; };
template <class T>
__device__ Pair<Acc<T>> pair(const Backward<T>& g, int64_t b, int64_t h, int64_t i, int64_t j,
                             Acc<T> score, Acc<T> dweight) {
    using A = Acc<T>;
    const int64_t row = g.tile.row(b, h, i);
    const A weight = exp_negative(score + g.bias.of(g.tile, h, i, j) - g.stats[2 * row]);
    const A keep = g.tile.p.dropout > 0 ? g.tile.template dropout<A>(b, h, i, j) : A(1);
    return {weight * keep, weight * (dweight * keep - g.delta[row])};
}

// to = or += scale * sum, rounded once.
template <class T>
__device__ void store_gradient(T* to, const Acc<T>* sum, int64_t dim, Acc<T> scale,
                               bool overwrite) {
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32)
        to[d] = stored<T>((overwrite ? Acc<T>(0) : number(to[d])) + sum[d] * scale);
}

// A warp per query. Shared memory: query, do, dq.
template <class T>
__global__ void __launch_bounds__(attention_threads) dq_kernel(const Backward<T> g) {
    using A = Acc<T>;
    const Tile& tile = g.tile;
    Position at;
    if (!my_position(tile.p.batch, tile.p.heads, tile.p.q_len, &at)) return;
    const int64_t dim = tile.p.head_dim, kv = at.h / tile.group;
    A *q = dynamic_shared<A>() + (threadIdx.x / 32) * 3 * dim, *dout = q + dim, *dq = dout + dim;
    fetch(g.qkv_q + tile.query(at.b, at.h, at.i), dim, A(tile.p.scale), q);
    fetch(g.dout + tile.out(at.b, at.h, at.i), dim, A(1), dout);
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32) dq[d] = 0;
    const int64_t keys = tile.visible(at.i);
    for (int64_t j = tile.first_key(at.i); j < keys; ++j) {
        if (tile.hides(at.b, j)) continue;
        const T* k = g.qkv_k + tile.key(at.b, kv, j);
        const A score = dot(q, k, dim), dweight = dot(dout, g.qkv_k + tile.value(at.b, kv, j), dim);
        add(k, dim, pair(g, at.b, at.h, at.i, j, score, dweight).dscore, dq);
    }
    store_gradient(g.dqkv_q + tile.query(at.b, at.h, at.i), dq, dim, A(tile.p.scale),
                   tile.p.first_q != 0);
}

// A warp per key. Shared memory: key, value, dk, dv.
template <class T>
__global__ void __launch_bounds__(attention_threads) dkdv_kernel(const Backward<T> g) {
    using A = Acc<T>;
    const Tile& tile = g.tile;
    Position at;  // h: a kv head
    if (!my_position(tile.p.batch, tile.p.kv_heads, tile.p.k_len, &at)) return;
    const int64_t dim = tile.p.head_dim, j = at.i;
    A *k = dynamic_shared<A>() + (threadIdx.x / 32) * 4 * dim, *v = k + dim, *dk = v + dim,
      *dv = dk + dim;
    fetch(g.qkv_k + tile.key(at.b, at.h, j), dim, A(tile.p.scale), k);
    fetch(g.qkv_k + tile.value(at.b, at.h, j), dim, A(1), v);
    for (int64_t d = threadIdx.x % 32; d < dim; d += 32) dk[d] = dv[d] = 0;
    for (int64_t h = at.h * tile.group; h < (at.h + 1) * tile.group; ++h)
        for (int64_t i = tile.first_query(j), end = tile.end_query(at.b, j); i < end; ++i) {
            const T *q = g.qkv_q + tile.query(at.b, h, i), *dout = g.dout + tile.out(at.b, h, i);
            const Pair<A> both = pair(g, at.b, h, i, j, dot(k, q, dim), dot(v, dout, dim));
            add(dout, dim, both.weight, dv);
            add(q, dim, both.dscore, dk);
        }
    const bool overwrite = tile.p.first_kv != 0;
    store_gradient(g.dqkv_k + tile.key(at.b, at.h, j), dk, dim, A(tile.p.scale), overwrite);
    store_gradient(g.dqkv_k + tile.value(at.b, at.h, j), dv, dim, A(1), overwrite);
}

// The gradient of the bias. A block sums the buckets of a head over every `chunks`-th of the
// queries of all sequences; its warps' sums are in shared memory: (warps, buckets), then a query
// and do for each warp. blockIdx: chunk, head. sums (chunks, heads, buckets).
constexpr int64_t most_chunks = 64;
template <class T>
__global__ void __launch_bounds__(attention_threads, 4)
    bias_kernel(const Backward<T> g, Acc<T>* sums) {
    using A = Acc<T>;
    const Tile& tile = g.tile;
    const int64_t dim = tile.p.head_dim, buckets = tile.p.buckets, h = blockIdx.y,
                  warp = threadIdx.x / 32, kv = h / tile.group;
    A *all = dynamic_shared<A>(), *mine = all + warp * buckets,
      *q = all + warps * buckets + warp * 2 * dim, *dout = q + dim;
    for (int64_t k = threadIdx.x % 32; k < buckets; k += 32) mine[k] = 0;
    __syncwarp();
    const int64_t queries = tile.p.batch * tile.p.q_len, step = int64_t(gridDim.x) * warps;
    for (int64_t n = int64_t(blockIdx.x) * warps + warp; n < queries; n += step) {
        const int64_t b = n / tile.p.q_len, i = n % tile.p.q_len, keys = tile.visible(i);
        fetch(g.qkv_q + tile.query(b, h, i), dim, A(tile.p.scale), q);
        fetch(g.dout + tile.out(b, h, i), dim, A(1), dout);
        for (int64_t j = tile.first_key(i); j < keys; ++j) {
            if (tile.hides(b, j)) continue;
            const A score = dot(q, g.qkv_k + tile.key(b, kv, j), dim);
            const A dweight = dot(dout, g.qkv_k + tile.value(b, kv, j), dim);
            const A dscore = pair(g, b, h, i, j, score, dweight).dscore;
            if (threadIdx.x % 32 == 0) mine[g.bias.bucket(tile, i, j)] += dscore;
        }
    }
    __syncthreads();
    for (int64_t k = threadIdx.x; k < buckets; k += attention_threads) {
        A sum = 0;
        for (int w = 0; w < warps; ++w) sum += all[w * buckets + k];
        sums[(int64_t(blockIdx.x) * tile.p.heads + h) * buckets + k] = sum;
    }
}

// dbias (buckets, heads) = or += the sums over the chunks.
template <class A>
__global__ void __launch_bounds__(attention_threads)
    bias_sum_kernel(A* dbias, const A* sums, int64_t chunks, int64_t heads, int64_t buckets,
                    bool overwrite) {
    const int64_t n = int64_t(blockIdx.x) * attention_threads + threadIdx.x;
    if (n >= heads * buckets) return;
    const int64_t h = n / buckets, k = n % buckets;
    A sum = overwrite ? A(0) : dbias[k * heads + h];
    for (int64_t c = 0; c < chunks; ++c) sum += sums[c * heads * buckets + n];
    dbias[k * heads + h] = sum;
}

// False if the launch failed. sums: workspace for (chunks, heads, buckets).
template <class T>
bool run_bias(const KernelCall& call, const Backward<T>& g, int64_t chunks, Acc<T>* sums) {
    using A = Acc<T>;
    const nn_attention_params& p = g.tile.p;
    const size_t shared = size_t(warps * (p.buckets + 2 * p.head_dim)) * sizeof(A);
    const dim3 grid(unsigned(chunks), unsigned(p.heads));
    const int64_t count = p.heads * p.buckets;
    return launch(call, {grid, attention_threads, shared}, bias_kernel<T>, g, sums) &&
           launch(call, {blocks_for(count, attention_threads), attention_threads},
                  bias_sum_kernel<A>, call.operand<A>(9), static_cast<const A*>(sums), chunks,
                  p.heads, p.buckets, p.first_q != 0);
}

template <class T> void run_backward(const KernelCall& call) {
    using A = Acc<T>;
    const auto& p = call.get<nn_attention_params>();
    const int64_t rows = p.batch * p.heads * p.q_len, keys = p.batch * p.kv_heads * p.k_len;
    const Bias<T> bias = bias_of<T>(call, 8);
    const int64_t chunks =
        bias.values ? smaller(most_chunks, ceil_div(p.batch * p.q_len, int64_t(warps))) : 0;
    A* delta = workspace<A>(call, rows + chunks * p.heads * p.buckets);
    if (!delta) return;
    const Backward<T> g{tile_of(call, 7),
                        call.operand<T>(0),
                        call.operand<T>(1),
                        call.input<T>(2),
                        call.input<T>(3),
                        call.input<T>(4),
                        call.input<T>(5),
                        call.input<A>(6),
                        delta,
                        bias};
    if (rows > 0 && !run_delta(call, g, rows)) return;
    if (bias.values && rows > 0 && !run_bias(call, g, chunks, delta + rows)) return;
    if constexpr (std::is_same_v<T, bf16>)
        if (rows > 0 && keys > 0 && attention_backward_mma(call, delta)) return;
    if (rows > 0 && !launch(call, shape_for(rows, 3 * p.head_dim, sizeof(A)), dq_kernel<T>, g))
        return;
    if (keys > 0) launch(call, shape_for(keys, 4 * p.head_dim, sizeof(A)), dkdv_kernel<T>, g);
}

void attention_backward(const KernelCall& call) {
    if (attention_cudnn(call, true)) return;
    visit_float(call.dtype, [&]<class T>(T*) { run_backward<T>(call); });
}

NN_IMPLEMENT(attention, attention_backward);

}  // namespace
}  // namespace nn::NN_TARGET
