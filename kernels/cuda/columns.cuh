// Sums over the rows of a matrix, for the gradients of biases and of LayerNorm's weights. A block
// takes a stripe of columns and a chunk of rows, and each of its warps every eighth row. The sums
// of the warps, and then of the chunks, are added in a fixed order.
#pragma once
#include "kernels/cuda/rows.cuh"

namespace nn::NN_TARGET {
namespace {

constexpr unsigned column_threads = 256;
constexpr int column_warps = int(column_threads) / 32;

// chunk_sums (chunks, outputs, cols), or nullptr if sums are not wanted. A Source has
//   static constexpr int outputs;
//   template <int width> void add(row, column, A (&sums)[outputs][width]);
template <class A, int width, class Source>
__global__ void __launch_bounds__(column_threads)
    column_parts(const Source source, int64_t rows, int64_t cols, int64_t chunk, A* chunk_sums) {
    constexpr int outputs = Source::outputs;
    __shared__ A shared[column_warps][outputs][width][32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t column = (int64_t(blockIdx.x) * 32 + lane) * width;
    const int64_t begin = int64_t(blockIdx.y) * chunk, end = smaller(rows, begin + chunk);
    A sums[outputs][width] = {};
    if (column < cols)
        for (int64_t row = begin + warp; row < end; row += column_warps)
            source.template add<width>(row, column, sums);
    if (!chunk_sums) return;  // all threads
#pragma unroll
    for (int o = 0; o < outputs; ++o)
#pragma unroll
        for (int e = 0; e < width; ++e) shared[warp][o][e][lane] = sums[o][e];
    __syncthreads();
    if (warp != 0 || column >= cols) return;
    for (int o = 0; o < outputs; ++o)
        for (int e = 0; e < width; ++e) {
            A total = shared[0][o][e][lane];
            for (int w = 1; w < column_warps; ++w) total += shared[w][o][e][lane];
            chunk_sums[(int64_t(blockIdx.y) * outputs + o) * cols + column + e] = total;
        }
}

template <class A> struct Outputs { A* y[2]; };

constexpr int part_columns = 8;  // of a block: 32 bytes of float, which memory transfers at least

// y[o] (cols) = or += the chunks' sums of output o. A thread adds every 32nd chunk; then
// the sums of a warp's threads and those of the warps are added, always in the same order.
template <class A>
__global__ void __launch_bounds__(column_threads)
    add_column_parts(const Outputs<A> to, const A* chunk_sums, int64_t chunks, int64_t cols,
                     int outputs, bool first) {
    constexpr int adders = int(column_threads) / part_columns;
    __shared__ A shared[column_warps][part_columns];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t column = int64_t(blockIdx.x) * part_columns + lane % part_columns;
    const int o = int(blockIdx.y);
    A* y = to.y[o];
    if (!y) return;  // all threads
    A total = 0;
    if (column < cols)
        for (int64_t c = threadIdx.x / part_columns; c < chunks; c += adders)
            total += chunk_sums[(c * outputs + o) * cols + column];
    for (int distance = part_columns; distance < 32; distance *= 2)
        total += __shfl_xor_sync(all_lanes, total, distance);
    if (lane < part_columns) shared[warp][lane] = total;
    __syncthreads();
    if (threadIdx.x >= part_columns || column >= cols) return;
    for (int w = 1; w < column_warps; ++w) total += shared[w][lane];
    y[column] = first ? total : y[column] + total;
}

// y[o] = or += the sums of output o over the chunks.
template <class T>
void add_parts(const KernelCall& call, const Acc<T>* chunk_sums, int64_t chunks, int64_t cols,
               int outputs, bool first, Outputs<Acc<T>> to) {
    launch(call, {dim3(unsigned(ceil_div(cols, part_columns)), unsigned(outputs)), column_threads},
           add_column_parts<Acc<T>>, to, chunk_sums, chunks, cols, outputs, first);
}

// y[o] = or += the sums of source over rows. packed: columns may be loaded 16 bytes of T at a time.
template <class T, class Source>
void sum_columns(const KernelCall& call, const Source& source, int64_t rows, int64_t cols,
                 bool packed, bool first, Outputs<Acc<T>> to) {
    using A = Acc<T>;
    if (cols == 0) return;
    const bool wanted = to.y[0] || to.y[1];
    const int width = packed ? lanes16<T> : 1;
    const int64_t stripes = ceil_div(cols, 32 * width);
    // About a thousand blocks, of at least 32 rows each.
    const int64_t chunk =
        larger<int64_t>(32, ceil_div(rows, larger<int64_t>(1, ceil_div(1024, stripes))));
    const int64_t chunks = larger<int64_t>(1, ceil_div(rows, chunk));
    A* chunk_sums = wanted ? workspace<A>(call, chunks * Source::outputs * cols) : nullptr;
    if (wanted && !chunk_sums) return;
    const Shape shape{dim3(unsigned(stripes), unsigned(chunks)), column_threads};
    const auto kernel = packed ? column_parts<A, lanes16<T>, Source> : column_parts<A, 1, Source>;
    if (launch(call, shape, kernel, source, rows, cols, chunk, chunk_sums) && wanted)
        add_parts<T>(call, chunk_sums, chunks, cols, int(Source::outputs), first, to);
}

}  // namespace
}  // namespace nn::NN_TARGET
