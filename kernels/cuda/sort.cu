// The elements of given ranks along an axis, in order, for sort, topk, kthvalue and median; and
// searchsorted. Blocks sort chunks of a row in shared memory; passes merge pairs of runs in the
// workspace: an entry's place is its place in its run plus the number of smaller ones in the other.
#include "kernels/cuda/cuda.cuh"
#include "kernels/params/sort.h"
#include "kernels/sort_key.h"
#include "kernels/visit_any.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t largest_chunk = 1024;  // entries

// The number of entries before the first one for which `before` is false.
template <class K, class F>
__device__ int64_t count_before(const SortEntry<K>* entries, int64_t n, F before) {
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (before(entries[middle]))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Writes result c of a row from its n sorted entries.
template <class T, class K>
__device__ void write_rank(T* y, int64_t* index, const T* x, const nn_sort_params& p, int64_t row,
                           int64_t c, const SortEntry<K>* sorted) {
    int64_t rank = p.first + c;
    if constexpr (!std::is_integral_v<T>)
        if (p.nan_wins && sorted[p.n - 1].key == largest_key<T>)
            rank = count_before(sorted, p.n, [](const auto& e) { return e.key < largest_key<T>; });
    const int64_t o = row / p.inner, i = row % p.inner, at = int64_t(sorted[rank].index);
    const int64_t to = (o * p.count + c) * p.inner + i;
    y[to] = x[(o * p.n + at) * p.inner + i];
    index[to] = at;
}

// Sorts `size` entries, a power of two, in shared memory by a bitonic network.
template <class K> __device__ void sort_block(SortEntry<K>* entries, int64_t size) {
    for (int64_t run = 2; run <= size; run *= 2)
        for (int64_t distance = run / 2; distance > 0; distance /= 2) {
            __syncthreads();
            for (int64_t t = threadIdx.x; t < size / 2; t += blockDim.x) {
                const int64_t i = t / distance * 2 * distance + t % distance;
                const SortEntry<K> a = entries[i], b = entries[i + distance];
                if ((b < a) == ((i & run) == 0)) entries[i] = b, entries[i + distance] = a;
            }
        }
    __syncthreads();
}

// A block sorts chunk b % chunks of row first_row + b / chunks, of `size` entries. The only chunk
// of a row is written as the result, others to `to`.
template <class T, class K>
__global__ void __launch_bounds__(512)
    sort_chunks(T* y, int64_t* index, const T* x, nn_sort_params p, SortEntry<K>* to,
                int64_t first_row, int64_t chunks, int64_t size) {
    SortEntry<K>* entries = dynamic_shared<SortEntry<K>>();
    const int64_t local = int64_t(blockIdx.x) / chunks, row = first_row + local;
    const int64_t begin = int64_t(blockIdx.x) % chunks * size, here = smaller(size, p.n - begin);
    const T* from = x + row / p.inner * p.n * p.inner + row % p.inner;
    for (int64_t j = threadIdx.x; j < size; j += blockDim.x)
        entries[j] = j < here
                         ? SortEntry<K>{K(sort_key(from[(begin + j) * p.inner], p.descending != 0)),
                                        K(begin + j)}
                         : SortEntry<K>{K(~K(0)), K(~K(0))};
    sort_block(entries, size);
    if (chunks == 1) {
        for (int64_t c = threadIdx.x; c < p.count; c += blockDim.x)
            write_rank(y, index, x, p, row, c, entries);
    } else {
        for (int64_t j = threadIdx.x; j < here; j += blockDim.x)
            to[local * p.n + begin + j] = entries[j];
    }
}

// Merges neighbouring runs of `run` entries in rows of n; `all` entries in total.
template <class K>
__global__ void __launch_bounds__(threads)
    merge_runs(SortEntry<K>* to, const SortEntry<K>* from, int64_t n, int64_t run, int64_t all) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= all) return;
    const SortEntry<K> own = from[i];
    const int64_t at = i % n, begin = at / run * run;  // of the entry's run
    from += i - at, to += i - at;
    const bool left = begin / run % 2 == 0;
    const int64_t other = left ? smaller(begin + run, n) : begin - run;
    const int64_t length = left ? smaller(run, n - other) : run;
    const int64_t smaller_there =
        count_before(from + other, length, [=](const SortEntry<K>& e) { return e < own; });
    to[(left ? begin : other) + at - begin + smaller_there] = own;
}

template <class T, class K>
__global__ void __launch_bounds__(threads)
    write_ranks(T* y, int64_t* index, const T* x, nn_sort_params p, const SortEntry<K>* sorted,
                int64_t first_row, int64_t rows) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= rows * p.count) return;
    const int64_t local = i / p.count;
    write_rank(y, index, x, p, first_row + local, i % p.count, sorted + local * p.n);
}

// Rows of several chunks, as many at a time as fit into the workspace twice.
template <class T, class K> void sort_long_rows(const KernelCall& call, int64_t chunks) {
    const auto& p = call.get<nn_sort_params>();
    const int64_t all = p.outer * p.inner;
    const int64_t room = int64_t(call.gpu->workspace_bytes / sizeof(SortEntry<K>)) / (2 * p.n);
    const int64_t most = smaller(all, larger<int64_t>(room, 1));
    SortEntry<K>* from = workspace<SortEntry<K>>(call, 2 * most * p.n);
    if (!from) return;
    SortEntry<K>* to = from + most * p.n;
    T* y = call.operand<T>(0);
    int64_t* index = call.operand<int64_t>(1);
    const T* x = call.input<T>(2);
    for (int64_t first = 0; first < all; first += most) {
        const int64_t rows = smaller(most, all - first), entries = rows * p.n;
        const size_t shared = largest_chunk * sizeof(SortEntry<K>);
        if (!launch(call, {blocks_for(rows * chunks, 1), 512, shared}, sort_chunks<T, K>, y, index,
                    x, p, from, first, chunks, largest_chunk))
            return;
        for (int64_t run = largest_chunk; run < p.n; run *= 2, std::swap(from, to))
            if (!launch_each(call, entries, 1, merge_runs<K>, to, from, p.n, run, entries)) return;
        if (!launch_each(call, rows * p.count, 1, write_ranks<T, K>, y, index, x, p, from, first,
                         rows))
            return;
    }
}

template <class T, class K> void sort_rows(const KernelCall& call) {
    const auto& p = call.get<nn_sort_params>();
    if (p.outer * p.inner * p.count == 0) return;
    const int64_t chunks = ceil_div(p.n, largest_chunk);
    if (chunks > 1) return sort_long_rows<T, K>(call, chunks);
    int64_t size = 2;
    while (size < p.n) size *= 2;
    launch(call,
           {blocks_for(p.outer * p.inner, 1), threads_for(size, 2, 512),
            size_t(size) * sizeof(SortEntry<K>)},
           sort_chunks<T, K>, call.operand<T>(0), call.operand<int64_t>(1), call.input<T>(2), p,
           nullptr, int64_t(0), int64_t(1), size);
}

void sort(const KernelCall& call) {
    const int64_t n = call.get<nn_sort_params>().n;
    visit_any(call.dtype, [&]<class T>(T*) {
        visit_entries<T>(n, [&]<class K>(K*) { sort_rows<T, K>(call); });
    });
}

template <class T>
__global__ void __launch_bounds__(threads)
    search_kernel(int64_t* index, const T* sorted, const T* values, nn_searchsorted_params p) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= p.rows * p.m) return;
    const auto value = ascending_key(values[i]);
    sorted += i / p.m * p.n;
    int64_t low = 0, high = p.n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const auto key = ascending_key(sorted[middle]);
        if (key < value || (p.right && key == value))
            low = middle + 1;
        else
            high = middle;
    }
    index[i] = low;
}

void searchsorted(const KernelCall& call) {
    const auto& p = call.get<nn_searchsorted_params>();
    if (p.rows * p.m == 0) return;
    visit_any(call.dtype, [&]<class T>(T*) {
        launch_each(call, p.rows * p.m, 1, search_kernel<T>, call.operand<int64_t>(0),
                    call.input<T>(1), call.input<T>(2), p);
    });
}

NN_IMPLEMENT(sort, searchsorted);

}  // namespace
}  // namespace nn::NN_TARGET
