// Loops over a row by the threads of a block: packs of 16 bytes if the tile is aligned, and single
// elements at the ends of rows whose length is no multiple of that. A thread visits the same
// elements in every loop, so a loop may read what the loop before wrote, without a barrier.
#pragma once
#include "kernels/cuda/cuda.cuh"

namespace nn::NN_TARGET {
namespace {

// A compile-time number as an argument.
template <int n> struct Width {
    NN_HD constexpr operator int() const { return n; }
};

// Calls f(first element, number as a Width) for this thread's elements of a row of n that begins at
// element `start` of its tile. packed: the tile is aligned to 16 bytes. Elements before the row's
// first boundary of 16 bytes and after its last are single, all others come in packs.
template <class T, class F> __device__ void each_pack(int64_t start, int64_t n, bool packed, F f) {
    constexpr int width = lanes16<T>;
    const int64_t head = packed ? smaller<int64_t>(n, (width - start % width) % width) : n;
    const int64_t end = head + (n - head) / width * width;
    for (int64_t j = head + int64_t(threadIdx.x) * width; j < end; j += int64_t(blockDim.x) * width)
        f(j, Width<width>());
    for (int64_t k = threadIdx.x; k < head + n - end; k += blockDim.x)
        f(k < head ? k : end + k - head, Width<1>());
}

// Calls f(element as A, its index) for this thread's elements of the row x, as each_pack does.
template <class A, class T, class F>
__device__ void each_number(const T* x, int64_t start, int64_t n, bool packed, F f) {
    each_pack<T>(start, n, packed, [&](int64_t j, auto width) {
        A v[width];
        load_pack<width>(x + j, v);
        for (int e = 0; e < width; ++e) f(v[e], j + e);
    });
}

// Whether rows of n elements of T at these addresses consist of packs only, as they must if the
// loop also reads something that is the same for every row. nullptr counts as aligned.
template <class T, class... P> bool rows_packed(int64_t n, P... pointers) {
    return n % lanes16<T> == 0 && all_aligned(pointers...);
}

template <class T> Shape rows_shape(int64_t rows, int64_t n, bool packed) {
    return {blocks_for(rows, 1), threads_for(n, packed ? lanes16<T> : 1)};
}

}  // namespace
}  // namespace nn::NN_TARGET
