// Attention for bf16 and heads of 64 and 128 on tensor cores (Dao, arXiv:2307.08691). A block of
// four warps computes 64 queries of a head, 16 per warp, in a loop over the keys that they see, 64
// at a time; the next keys and values are copied meanwhile. Scores and sums are in registers, in
// float; weights are rounded to bf16 for the product with the values.
//
// To be measured on a GPU: 128 queries per block, three stages, wgmma on Hopper.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

namespace nn::NN_TARGET {
namespace {

constexpr int rows = 64, keys = 64;  // per block

struct Operands {
    bf16* o;
    float *acc, *stats;
    const bf16 *qkv_q, *qkv_k;
};

// The queries of a block: one head, from q0 on.
struct Position {
    int64_t b, h, kv, q0;
};

// This lane's part of two of the warp's 16 rows, g and g + 8: the output, columns 8 n + 2 t and 8 n
// + 2 t + 1, the running maxima (times log2 e), and the sums over this lane's columns.
template <int dim> struct State {
    float out[dim / 8][4];
    float m[2], l[2];
};

// Shared memory: two stages of keys and values; the second first holds the queries.
template <int dim> struct Stages {
    bf16* memory;
    __device__ SharedRows<dim> k(int64_t stage) const {
        return {memory + stage % 2 * 2 * keys * dim};
    }
    __device__ SharedRows<dim> v(int64_t stage) const { return {k(stage).data + keys * dim}; }
};
template <int dim> constexpr size_t shared_bytes = size_t(4 * keys * dim) * sizeof(bf16);

template <int dim>
__device__ void copy_keys(const Tile& tile, const Operands& o, const Position& at,
                          const Stages<dim>& stages, int64_t number) {
    const int64_t k0 = number * keys, valid = tile.p.k_len - k0;
    stages.k(number).copy(o.qkv_k + tile.key(at.b, at.kv, k0), tile.kv_width, keys, valid);
    stages.v(number).copy(o.qkv_k + tile.value(at.b, at.kv, k0), tile.kv_width, keys, valid);
    copies_end();
}

// The queries of this lane's rows. Queries past the tile are computed from zeros and not stored.
__device__ inline int64_t query_of(const Position& at, int half) { return at.q0 + my_row(half); }

template <int dim>
__device__ void start(const Tile& tile, const Operands& o, const Position& at, State<dim>& s) {
    const int t = int(threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t i = query_of(at, half);
        const bool resumed = !tile.p.first && i < tile.p.q_len;
        const float* stat = o.stats + tile.row(at.b, at.h, i) * 2;
        const float* acc = o.acc + tile.out(at.b, at.h, i);
        s.m[half] = resumed ? stat[0] * float(log2_e) : -INFINITY;
        s.l[half] = resumed && t == 0 ? stat[1] : 0.0f;
#pragma unroll
        for (int n = 0; n < dim / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                s.out[n][2 * half + e] = resumed ? acc[8 * n + 2 * t + e] : 0.0f;
    }
}

// scores (16, keys) = q k^T
template <int dim>
__device__ void multiply_keys(const uint32_t (&q)[dim / 16][4], const SharedRows<dim>& k,
                              float (&scores)[keys / 8][4]) {
#pragma unroll
    for (int n = 0; n < keys / 8; n += 2) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[n][e] = scores[n + 1][e] = 0;
#pragma unroll
        for (int d = 0; d < dim / 16; ++d) {
            uint32_t b[4];
            load_blocks(b, k.columns_first(8 * n, 16 * d));
            mma(scores[n], q[d], b[0], b[1]);
            mma(scores[n + 1], q[d], b[2], b[3]);
        }
    }
}

// Masks the keys that the queries do not see, in block `number` of keys.
__device__ inline void mask(const Tile& tile, const Position& at, int64_t number,
                            float (&scores)[keys / 8][4]) {
    const int64_t first = number * keys + 2 * int64_t(threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t visible = tile.visible(query_of(at, half));
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (first + 8 * n + e >= visible || tile.hides(at.b, first + 8 * n + e))
                    scores[n][2 * half + e] = -INFINITY;
    }
}

// Turns scores into weights; updates maxima, sums and the output.
template <int dim>
__device__ void online_softmax(float scale, float (&scores)[keys / 8][4], State<dim>& s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float top = -INFINITY;
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
            top = Max()(Max()(top, scores[n][2 * half]), scores[n][2 * half + 1]);
        top = Max()(top, __shfl_xor_sync(all_lanes, top, 1));
        top = Max()(top, __shfl_xor_sync(all_lanes, top, 2));
        const float m = Max()(s.m[half], top * scale), shift = m == -INFINITY ? 0.0f : m;
        const float keep = exp2_fast(s.m[half] - shift);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float& score = scores[n][2 * half + e];
                score = exp2_fast(score * scale - shift);
                sum += score;
            }
        s.m[half] = m;
        s.l[half] = s.l[half] * keep + sum;
#pragma unroll
        for (int n = 0; n < dim / 8; ++n)
            s.out[n][2 * half] *= keep, s.out[n][2 * half + 1] *= keep;
    }
}

__device__ inline void drop(const Tile& tile, const Position& at, int64_t number,
                            float (&scores)[keys / 8][4]) {
    const int64_t first = number * keys + 2 * int64_t(threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < keys / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                scores[n][2 * half + e] *=
                    tile.dropout<float>(at.b, at.h, query_of(at, half), first + 8 * n + e);
}

template <int dim>
__device__ void finish(const Tile& tile, const Operands& o, const Position& at, State<dim>& s) {
    const int t = int(threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float l = s.l[half];
        l += __shfl_xor_sync(all_lanes, l, 1);
        l += __shfl_xor_sync(all_lanes, l, 2);
        const int64_t i = query_of(at, half);
        if (i >= tile.p.q_len) continue;  // no warp operation follows
        const float m = s.m[half] * float(ln_2);
        if (t == 0) {
            float* stat = o.stats + tile.row(at.b, at.h, i) * 2;
            stat[0] = tile.p.last ? log_sum(m, l) : m;
            stat[1] = tile.p.last ? 1.0f : l;
        }
        const int64_t to = tile.out(at.b, at.h, i) + 2 * t;
        const float inverse = inverse_sum(l);
#pragma unroll
        for (int n = 0; n < dim / 8; ++n) {
            const float low = s.out[n][2 * half], high = s.out[n][2 * half + 1];
            if (tile.p.last)
                *reinterpret_cast<uint32_t*>(o.o + to + 8 * n) =
                    pack2(low * inverse, high * inverse);
            else
                *reinterpret_cast<Pack<float, 2>*>(o.acc + to + 8 * n) = {{low, high}};
        }
    }
}

// blockIdx: query block, head, sequence.
template <int dim, bool dropout>
__global__ void __launch_bounds__(attention_threads)
    attention_mma_kernel(const Tile tile, const Operands o) {
    // The last queries see the most keys, so their blocks start first.
    const Position at{blockIdx.z, blockIdx.y, blockIdx.y / tile.group,
                      int64_t(gridDim.x - 1 - blockIdx.x) * rows};
    const Stages<dim> stages{dynamic_shared<bf16>()};
    const int64_t last = smaller<int64_t>(at.q0 + rows, tile.p.q_len) - 1;
    const int64_t blocks = ceil_div(tile.visible(last), keys);
    stages.k(1).copy(o.qkv_q + tile.query(at.b, at.h, at.q0), tile.q_width, rows,
                     tile.p.q_len - at.q0);
    if (blocks > 0) copy_keys(tile, o, at, stages, 0);
    copies_end();
    State<dim> s;
    start(tile, o, at, s);
    copies_wait<0>();
    __syncthreads();
    uint32_t q[dim / 16][4];
#pragma unroll
    for (int d = 0; d < dim / 16; ++d)
        load_blocks(q[d], stages.k(1).rows_first(int(threadIdx.x / 32) * 16, 16 * d));
    __syncthreads();  // the queries are in registers; the second stage is free for keys
    const float scale = float(tile.p.scale * log2_e);
    for (int64_t number = 0; number < blocks; ++number) {
        if (number + 1 < blocks) copy_keys(tile, o, at, stages, number + 1);
        float scores[keys / 8][4];
        multiply_keys<dim>(q, stages.k(number), scores);
        if (tile.mask || (number + 1) * keys > tile.visible(at.q0)) mask(tile, at, number, scores);
        online_softmax<dim>(scale, scores, s);
        if constexpr (dropout) drop(tile, at, number, scores);
        accumulate<dim, keys>(scores, stages.v(number), s.out);
        copies_wait<0>();
        __syncthreads();  // all warps have the next stage and are finished with this one
    }
    finish(tile, o, at, s);
}

template <int dim> bool run(const KernelCall& call, const Operands& o) {
    const auto& p = call.get<nn_attention_params>();
    const dim3 grid(unsigned(ceil_div(p.q_len, rows)), unsigned(p.heads), unsigned(p.batch));
    const auto kernel =
        p.dropout > 0 ? attention_mma_kernel<dim, true> : attention_mma_kernel<dim, false>;
    launch(call, {grid, attention_threads, shared_bytes<dim>}, kernel, tile_of(call, 5), o);
    return true;
}

}  // namespace

bool attention_mma(const KernelCall& call) {
    const auto& p = call.get<nn_attention_params>();
    const Operands o{call.operand<bf16>(0), call.operand<float>(1), call.operand<float>(2),
                     call.input<bf16>(3), call.input<bf16>(4)};
    const bool fits = call.dtype == Dtype::bf16 && p.scale > 0 && p.window == 0 &&
                      !call.operands[6] && all_aligned(o.qkv_q, o.qkv_k, o.o, o.acc) &&
                      p.heads <= 65535 && p.batch <= 65535;
    if (!fits) return false;
    if (p.head_dim == 64) return run<64>(call, o);
    if (p.head_dim == 128) return run<128>(call, o);
    return false;
}

}  // namespace nn::NN_TARGET
