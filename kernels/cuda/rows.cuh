// Rows that a block of threads works on together: loops over packs of 16 bytes where the tile is
// aligned, and single elements at the ends of rows whose length is no multiple of that. A thread
// visits the same elements in every loop, so that what one loop writes the next may read without a
// barrier.
#pragma once
#include "kernels/cuda/cuda.cuh"

namespace nn::NN_TARGET {
namespace {

// A number that is known while compiling, as an argument.
template <int n> struct Width {
    NN_HD constexpr operator int() const { return n; }
};

// Calls f(first element, their number as a Width) for this thread's elements of a row of n, which
// begins at element `start` of its tile. packed: the tile is aligned to 16 bytes; then those before
// the row's first boundary of 16 bytes and after its last are taken singly, all others in packs.
template <class T, class F> __device__ void each_pack(int64_t start, int64_t n, bool packed, F f) {
    constexpr int width = lanes16<T>;
    const int64_t head = packed ? smaller<int64_t>(n, (width - start % width) % width) : n;
    const int64_t end = head + (n - head) / width * width;
    for (int64_t j = head + int64_t(threadIdx.x) * width; j < end; j += int64_t(blockDim.x) * width)
        f(j, Width<width>());
    for (int64_t k = threadIdx.x; k < head + n - end; k += blockDim.x)
        f(k < head ? k : end + k - head, Width<1>());
}

// Whether rows of n elements of T at these addresses may all be taken in packs alone, as they must
// where something that is the same for each row is read beside them; nullptr counts as aligned.
template <class T, class... P> bool rows_packed(int64_t n, P... pointers) {
    return n % lanes16<T> == 0 && (aligned(pointers) && ...);
}

template <class T> Shape rows_shape(int64_t rows, int64_t n, bool packed) {
    return {blocks_for(rows, 1), threads_for(n, packed ? lanes16<T> : 1)};
}

}  // namespace
}  // namespace nn::NN_TARGET
