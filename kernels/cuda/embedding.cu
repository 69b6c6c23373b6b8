// Token and position embedding and their gradients. A tile of the token table holds some rows of
// the vocabulary; a call handles the ids of those rows. One block adds the gradient of a row, in
// token order, without atomics.
#include <climits>

#include "kernels/cuda/rows.cuh"
#include "kernels/params/embedding.h"

namespace nn::NN_TARGET {
namespace {

// A block computes a token: y = position vector + token vector.
template <class T>
__global__ void __launch_bounds__(threads)
    embedding_kernel(const nn_embedding_params p, bool packed, T* y, const T* tokens,
                     const T* positions, const void* ids, Fault* fault) {
    const int64_t i = blockIdx.x, id = load_index(ids, Dtype(p.ids_dtype), i),
                  row = id - p.row_start;
    const int64_t position = p.start + i % p.len;
    const bool known = id >= 0 && id < p.vocab, here = known && row >= 0 && row < p.rows;
    if (!known && threadIdx.x == 0) report(fault, id);
    if (!p.first && !here) return;
    y += i * p.cols;
    const T* add = tokens + row * p.cols;  // only read when here
    const T* base =
        p.first ? (positions && position < p.context ? positions + position * p.cols : nullptr) : y;
    each_pack<T>(0, p.cols, packed, [&](int64_t j, auto width) {
        Acc<T> v[width] = {}, w[width] = {};
        if (base) load_pack<width>(base + j, v);
        if (here) load_pack<width>(add + j, w);
        for (int e = 0; e < width; ++e) v[e] += w[e];
        store_pack<width>(y + j, v);
    });
}

void embedding(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    if (call.operand<void>(2) && p.start + p.len > p.context)
        call.fail("position %lld is outside the context of %lld", (long long)(p.start + p.len - 1),
                  (long long)p.context);
    if (p.batch * p.len == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        T* y = call.operand<T>(0);
        const T *tokens = call.input<T>(1), *positions = call.input<T>(2);
        const bool packed = rows_packed<T>(p.cols, y, tokens, positions);
        launch(
            call, rows_shape<T>(p.batch * p.len, p.cols, packed), embedding_kernel<T>, p, packed, y,
            tokens, positions, call.input<void>(3),
            expect(call, "token id %%lld is outside the vocabulary of %lld", (long long)p.vocab));
    });
}

constexpr int ids_per_thread = 8, ids_per_block = ids_per_thread * int(threads);

// Writes the positions in [begin, begin + ids_per_block) with the given id to `found`, in order;
// returns their number. Every thread of the block must call it.
__device__ inline int matches(const nn_embedding_params& p, const void* ids, int64_t id, int begin,
                              int32_t* found) {
    constexpr int warps = int(threads) / 32;
    __shared__ int counts[ids_per_thread * warps];
    const int end = int(p.batch * p.len);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned votes[ids_per_thread];
#pragma unroll
    for (int k = 0; k < ids_per_thread; ++k) {
        const int at = begin + k * int(threads) + int(threadIdx.x);
        votes[k] =
            __ballot_sync(all_lanes, at < end && load_index(ids, Dtype(p.ids_dtype), at) == id);
    }
    __syncthreads();  // the results of the last call have been read
    if (lane == 0)
#pragma unroll
        for (int k = 0; k < ids_per_thread; ++k) counts[k * warps + int(warp)] = __popc(votes[k]);
    __syncthreads();
    int total = 0;
    for (unsigned n = lane; n < unsigned(ids_per_thread * warps); n += 32) total += counts[n];
    total = warp_reduce(total, Sum());
    unsigned any = 0;
#pragma unroll
    for (int k = 0; k < ids_per_thread; ++k) any |= votes[k];
    if (any >> lane & 1) {
        int before = 0;
#pragma unroll
        for (int k = 0; k < ids_per_thread; ++k)
            for (int w = 0; w < warps; ++w) {
                if (w == int(warp) && (votes[k] >> lane & 1))
                    found[before + __popc(votes[k] & ((1u << lane) - 1))] =
                        begin + k * int(threads) + int(threadIdx.x);
                before += counts[k * warps + w];
            }
    }
    __syncthreads();
    return total;
}

// The block of the first token with an id adds the gradients of all tokens with that id, in order;
// the blocks of the others do nothing. Reading the ids is quadratic in their number, but they are
// few compared with the gradients.
template <class T>
__global__ void __launch_bounds__(threads)
    embedding_backward_kernel(const nn_embedding_params p, bool packed, Acc<T>* dtokens,
                              const void* ids, const T* dy) {
    __shared__ int32_t positions[ids_per_block];
    const int i = int(blockIdx.x);
    const int64_t id = load_index(ids, Dtype(p.ids_dtype), i), row = id - p.row_start;
    if (row < 0 || row >= p.rows) return;  // all threads
    bool repeats = false;
#pragma unroll 4
    for (int j = int(threadIdx.x); j < i; j += int(threads))
        repeats |= load_index(ids, Dtype(p.ids_dtype), j) == id;
    if (block_reduce(int(repeats), Max())) return;  // all threads
    Acc<T>* sum = dtokens + row * p.cols;
    for (int begin = i, end = int(p.batch * p.len); begin < end; begin += ids_per_block) {
        const int found = matches(p, ids, id, begin, positions);
        if (!found) continue;
        each_pack<T>(0, p.cols, packed, [&](int64_t c, auto width) {
            Acc<T> total[width], d[width];
            load_run<width>(sum + c, width, packed, total);
#pragma unroll 2
            for (int k = 0; k < found; ++k) {
                load_pack<width>(dy + positions[k] * p.cols + c, d);
                for (int e = 0; e < width; ++e) total[e] += d[e];
            }
            store_run<width>(sum + c, width, packed, total);
        });
    }
}

void embedding_backward(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        using A = Acc<T>;
        A* dtokens = call.operand<A>(0);
        const size_t bytes = size_t(p.rows * p.cols) * sizeof(A);
        if (p.first && !zero(call, dtokens, bytes, "zeroing the gradient")) return;
        if (p.batch * p.len == 0) return;
        const T* dy = call.input<T>(2);
        launch(call, {blocks_for(p.batch * p.len, 1), threads}, embedding_backward_kernel<T>, p,
               rows_packed<T>(p.cols, dtokens, dy), dtokens, call.input<void>(1), dy);
    });
}

// A thread computes `width` neighbouring elements of the table of positions.
template <class T, int width>
__global__ void __launch_bounds__(threads)
    positions_backward_kernel(const nn_embedding_params p, bool packed, Acc<T>* dpositions,
                              const T* dy) {
    const int64_t at = (int64_t(blockIdx.x) * threads + threadIdx.x) * width;
    if (at >= p.context * p.cols) return;
    const int64_t i = at / p.cols - p.start, c = at % p.cols;
    const bool here = i >= 0 && i < p.len;
    if (!p.first && !here) return;
    Acc<T> total[width] = {}, d[width];
    if (!p.first) load_run<width>(dpositions + at, width, packed, total);
    for (int64_t row = i; here && row < p.batch * p.len; row += p.len) {
        load_pack<width>(dy + row * p.cols + c, d);
        for (int e = 0; e < width; ++e) total[e] += d[e];
    }
    store_run<width>(dpositions + at, width, packed, total);
}

void positions_backward(const KernelCall& call) {
    const auto& p = call.get<nn_embedding_params>();
    if (p.context * p.cols == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        auto* dpositions = call.operand<Acc<T>>(0);
        const T* dy = call.input<T>(1);
        const bool packed = rows_packed<T>(p.cols, dpositions, dy);
        const int width = packed ? lanes16<T> : 1;
        launch_each(
            call, p.context * p.cols, width,
            packed ? positions_backward_kernel<T, lanes16<T>> : positions_backward_kernel<T, 1>, p,
            packed, dpositions, dy);
    });
}

NN_IMPLEMENT(embedding, embedding_backward, positions_backward);

}  // namespace
}  // namespace nn::NN_TARGET
