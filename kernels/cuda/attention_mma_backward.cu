// The gradient of attention for bf16 and heads of 64 and 128 on tensor cores. Two kernels recompute
// the weights from the log-sum-exp. For dk and dv a block computes 64 keys of a head in a loop over
// the queries that see them; for dq, 64 queries in a loop over their keys. These are seven products
// instead of five, but no block shares a sum, so there are no atomics. P and dS are rounded to bf16
// for their products; sums stay in float until the tile's gradient is written.
//
// To be measured on a GPU: one kernel with dS kept for dq, register use against occupancy for heads
// of 128, wgmma on Hopper.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

namespace nn::NN_TARGET {
namespace {

constexpr int rows = 64;  // per block: the keys of dk and dv, the queries of dq; 16 per warp
// Queries, or keys, of one step: as many as the registers hold beside the sums and, with dropout,
// the random numbers.
template <int dim, bool dropout> constexpr int columns = dim == 64 && !dropout ? 64 : 32;

struct Operands {
    bf16 *dqkv_q, *dqkv_k;
    const bf16 *qkv_q, *qkv_k, *dout;
    const float *stats, *delta;
};

// Shared memory: the block's own two matrices, and two stages of the two that it loops over.
template <int dim, int count> struct Memory {
    bf16* start;
    __device__ SharedRows<dim> own(int which) const { return {start + which * rows * dim}; }
    __device__ SharedRows<dim> other(int64_t stage, int which) const {
        return {start + 2 * rows * dim + (stage % 2 * 2 + which) * count * dim};
    }
    // For each query of a stage: log-sum-exp times log2 e, and delta.
    __device__ float* numbers(int64_t stage, int which) const {
        return reinterpret_cast<float*>(start + (2 * rows + 4 * count) * dim) +
               (stage % 2 * 2 + which) * count;
    }
};
template <int dim, int count>
constexpr size_t shared_bytes = size_t(2 * rows + 4 * count) * dim * sizeof(bf16) +
                                4 * count * sizeof(float);

// Turns a score and the gradient of its weight into the weight, with dropout, and the gradient of
// the score, without the scale.
__device__ inline void differentiate(float scale, float lse, float delta, bool masked, float keep,
                                     float* score, float* dweight) {
    const float weight = masked ? 0.0f : exp2_fast(*score * scale - lse);
    *score = weight * keep;
    *dweight = weight * (*dweight * keep - delta);
}

// The first `valid` rows of the block's gradient, at `to` in tiles of qkv, = or += scale times the
// sums.
template <int dim>
__device__ void store_rows(bf16* to, int64_t width, int64_t valid, float scale, bool overwrite,
                           const float (&sums)[dim / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (my_row(half) >= valid) continue;
        bf16* row = to + my_row(half) * width + 2 * int(threadIdx.x % 4);
#pragma unroll
        for (int n = 0; n < dim / 8; ++n) {
            float low = sums[n][2 * half] * scale, high = sums[n][2 * half + 1] * scale;
            if (!overwrite) {
                const auto before = *reinterpret_cast<const Pack<bf16, 2>*>(row + 8 * n);
                low += number(before.value[0]), high += number(before.value[1]);
            }
            *reinterpret_cast<uint32_t*>(row + 8 * n) = pack2(low, high);
        }
    }
}

// --- dk and dv ---

// One step: a block of queries of one of the heads of this kv head.
struct Step {
    int64_t h, q0;
};

template <int dim, int count>
__device__ void copy_queries(const Tile& tile, const Operands& o, int64_t b, const Step& step,
                             const Memory<dim, count>& memory, int64_t stage) {
    const int64_t valid = tile.p.q_len - step.q0;
    memory.other(stage, 0).copy(o.qkv_q + tile.query(b, step.h, step.q0), tile.q_width, count,
                                valid);
    memory.other(stage, 1).copy(o.dout + tile.out(b, step.h, step.q0), tile.p.heads * dim, count,
                                valid);
    copies_end();
    for (int i = int(threadIdx.x); i < count; i += int(attention_threads)) {
        const bool good = i < valid;  // past the tile, weights become e^-infinity = 0
        const int64_t row = tile.row(b, step.h, step.q0) + i;
        memory.numbers(stage, 0)[i] = good ? o.stats[2 * row] * float(log2_e) : INFINITY;
        memory.numbers(stage, 1)[i] = good ? o.delta[row] : 0.0f;
    }
}

// P^T in `weights` and dS^T in `dweights`: rows are keys, columns queries.
template <bool dropout, int dim, int count>
__device__ void differentiate_keys(const Tile& tile, int64_t b, const Step& step, int64_t k0,
                                   const Memory<dim, count>& memory, int64_t stage,
                                   float (&weights)[count / 8][4],
                                   float (&dweights)[count / 8][4]) {
    const float scale = float(tile.p.scale * log2_e);
    const float *lse = memory.numbers(stage, 0), *delta = memory.numbers(stage, 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t j = k0 + my_row(half),
                      first = tile.hides(b, j) ? count : tile.first_query(j) - step.q0;
#pragma unroll
        for (int n = 0; n < count / 8; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = 8 * n + 2 * int(threadIdx.x % 4) + e;
                float keep = 1;
                if constexpr (dropout) keep = tile.dropout<float>(b, step.h, step.q0 + i, j);
                differentiate(scale, lse[i], delta[i], i < first, keep, &weights[n][2 * half + e],
                              &dweights[n][2 * half + e]);
            }
    }
}

// blockIdx: block of keys, key and value head, sequence.
template <int dim, bool dropout>
__global__ void __launch_bounds__(attention_threads)
    dkdv_mma_kernel(const Tile tile, const Operands o) {
    constexpr int count = columns<dim, dropout>;
    const int64_t b = blockIdx.z, kv = blockIdx.y, k0 = int64_t(blockIdx.x) * rows;
    const Memory<dim, count> memory{dynamic_shared<bf16>()};
    const int64_t first = tile.first_query(k0) / count, end = ceil_div(tile.p.q_len, count);
    const int64_t per_head = larger<int64_t>(0, end - first), steps = tile.group * per_head;
    const auto step_at = [&](int64_t s) {
        return Step{kv * tile.group + s / per_head, (first + s % per_head) * count};
    };
    memory.own(0).copy(o.qkv_k + tile.key(b, kv, k0), tile.kv_width, rows, tile.p.k_len - k0);
    memory.own(1).copy(o.qkv_k + tile.value(b, kv, k0), tile.kv_width, rows, tile.p.k_len - k0);
    if (steps > 0) copy_queries(tile, o, b, step_at(0), memory, 0);
    copies_end();
    float dk[dim / 8][4] = {}, dv[dim / 8][4] = {};
    copies_wait<0>();
    __syncthreads();
    const int row = int(threadIdx.x / 32) * 16;
    for (int64_t s = 0; s < steps; ++s) {
        if (s + 1 < steps) copy_queries(tile, o, b, step_at(s + 1), memory, s + 1);
        const SharedRows<dim> q = memory.other(s, 0), dout = memory.other(s, 1);
        float weights[count / 8][4], dweights[count / 8][4];
        multiply_rows<dim, count>(memory.own(0), row, q, weights);
        multiply_rows<dim, count>(memory.own(1), row, dout, dweights);
        differentiate_keys<dropout>(tile, b, step_at(s), k0, memory, s, weights, dweights);
        accumulate<dim, count>(weights, dout, dv);
        accumulate<dim, count>(dweights, q, dk);
        copies_wait<0>();
        __syncthreads();  // all warps have the next stage and are finished with this one
    }
    const bool overwrite = tile.p.first_kv != 0;
    store_rows<dim>(o.dqkv_k + tile.key(b, kv, k0), tile.kv_width, tile.p.k_len - k0,
                    float(tile.p.scale), overwrite, dk);
    store_rows<dim>(o.dqkv_k + tile.value(b, kv, k0), tile.kv_width, tile.p.k_len - k0, 1.0f,
                    overwrite, dv);
}

// --- dq ---

template <int dim, int count>
__device__ void copy_keys(const Tile& tile, const Operands& o, int64_t b, int64_t kv, int64_t k0,
                          const Memory<dim, count>& memory, int64_t stage) {
    const int64_t valid = tile.p.k_len - k0;
    memory.other(stage, 0).copy(o.qkv_k + tile.key(b, kv, k0), tile.kv_width, count, valid);
    memory.other(stage, 1).copy(o.qkv_k + tile.value(b, kv, k0), tile.kv_width, count, valid);
    copies_end();
}

// blockIdx: block of queries, head, sequence.
template <int dim, bool dropout>
__global__ void __launch_bounds__(attention_threads)
    dq_mma_kernel(const Tile tile, const Operands o) {
    constexpr int count = columns<dim, dropout>;
    const int64_t b = blockIdx.z, h = blockIdx.y, kv = h / tile.group;
    const int64_t q0 = int64_t(gridDim.x - 1 - blockIdx.x) * rows;  // the longest loops first
    const Memory<dim, count> memory{dynamic_shared<bf16>()};
    const int64_t last = smaller<int64_t>(q0 + rows, tile.p.q_len) - 1;
    const int64_t steps = ceil_div(tile.visible(last), count);
    memory.own(0).copy(o.qkv_q + tile.query(b, h, q0), tile.q_width, rows, tile.p.q_len - q0);
    memory.own(1).copy(o.dout + tile.out(b, h, q0), tile.p.heads * dim, rows, tile.p.q_len - q0);
    if (steps > 0) copy_keys(tile, o, b, kv, 0, memory, 0);
    copies_end();
    const float scale = float(tile.p.scale * log2_e);
    float lse[2], delta[2], dq[dim / 8][4] = {};
    int64_t visible[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t i = q0 + my_row(half);
        const bool good = i < tile.p.q_len;
        lse[half] = good ? o.stats[2 * tile.row(b, h, i)] * float(log2_e) : INFINITY;
        delta[half] = good ? o.delta[tile.row(b, h, i)] : 0.0f;
        visible[half] = good ? tile.visible(i) : 0;
    }
    copies_wait<0>();
    __syncthreads();
    const int row = int(threadIdx.x / 32) * 16;
    for (int64_t s = 0; s < steps; ++s) {
        if (s + 1 < steps) copy_keys(tile, o, b, kv, (s + 1) * count, memory, s + 1);
        const SharedRows<dim> k = memory.other(s, 0), v = memory.other(s, 1);
        float weights[count / 8][4], dweights[count / 8][4];
        multiply_rows<dim, count>(memory.own(0), row, k, weights);
        multiply_rows<dim, count>(memory.own(1), row, v, dweights);
#pragma unroll
        for (int n = 0; n < count / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int64_t j = s * count + 8 * n + 2 * int(threadIdx.x % 4) + e % 2;
                const int half = e / 2;
                float keep = 1;
                if constexpr (dropout) keep = tile.dropout<float>(b, h, q0 + my_row(half), j);
                differentiate(scale, lse[half], delta[half], j >= visible[half] || tile.hides(b, j),
                              keep, &weights[n][e], &dweights[n][e]);
            }
        accumulate<dim, count>(dweights, k, dq);
        copies_wait<0>();
        __syncthreads();  // as above
    }
    store_rows<dim>(o.dqkv_q + tile.query(b, h, q0), tile.q_width, tile.p.q_len - q0,
                    float(tile.p.scale), tile.p.first_q != 0, dq);
}

template <int dim, bool dropout> void run(const KernelCall& call, const Operands& o) {
    const auto& p = call.get<nn_attention_params>();
    const dim3 keys(unsigned(ceil_div(p.k_len, rows)), unsigned(p.kv_heads), unsigned(p.batch));
    const dim3 queries(unsigned(ceil_div(p.q_len, rows)), unsigned(p.heads), unsigned(p.batch));
    constexpr size_t shared = shared_bytes<dim, columns<dim, dropout>>;
    if (launch(call, {keys, attention_threads, shared}, dkdv_mma_kernel<dim, dropout>,
               tile_of(call, 7), o))
        launch(call, {queries, attention_threads, shared}, dq_mma_kernel<dim, dropout>,
               tile_of(call, 7), o);
}

}  // namespace

bool attention_backward_mma(const KernelCall& call, const float* delta) {
    const auto& p = call.get<nn_attention_params>();
    const Operands o{call.operand<bf16>(0),
                     call.operand<bf16>(1),
                     call.input<bf16>(2),
                     call.input<bf16>(3),
                     call.input<bf16>(5),
                     call.input<float>(6),
                     delta};
    const bool fits = all_aligned(o.dqkv_q, o.dqkv_k, o.qkv_q, o.qkv_k, o.dout) &&
                      p.heads <= 65535 && p.batch <= 65535 && p.window == 0 && !call.operands[8];
    if (!fits || (p.head_dim != 64 && p.head_dim != 128)) return false;
    const auto chosen = p.head_dim == 64 ? (p.dropout > 0 ? run<64, true> : run<64, false>)
                                         : (p.dropout > 0 ? run<128, true> : run<128, false>);
    chosen(call, o);
    return true;
}

}  // namespace nn::NN_TARGET
