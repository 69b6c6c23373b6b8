// Rows that a block of threads works on together: loops over packs of 16 bytes where the rows allow
// it, single elements where not. A thread visits the same elements in every loop, so that what one
// loop writes the next may read without a barrier.
#pragma once
#include "kernels/cuda/cuda.cuh"

namespace nn::NN_ISA {
namespace {

// A number that is known while compiling, as an argument.
template <int n> struct Width {
    NN_HD constexpr operator int() const { return n; }
};

// Calls f(first element, their number as a Width) for this thread's packs of a row of n elements.
// packed: n is a multiple of the pack and the row is aligned.
template <class T, class F> __device__ void each_pack(int64_t n, bool packed, F f) {
    if (packed) {
        constexpr int width = lanes16<T>;
        for (int64_t j = int64_t(threadIdx.x) * width; j < n; j += int64_t(blockDim.x) * width)
            f(j, Width<width>());
    } else {
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x) f(j, Width<1>());
    }
}

// Whether rows of n elements of T at these addresses may be taken in packs; nullptr counts as
// aligned.
template <class T, class... P> bool rows_packed(int64_t n, P... pointers) {
    return n % lanes16<T> == 0 && (aligned(pointers) && ...);
}

template <class T> Shape rows_shape(int64_t rows, int64_t n, bool packed) {
    return {blocks_for(rows, 1), threads_for(n, packed ? lanes16<T> : 1)};
}

}  // namespace
}  // namespace nn::NN_ISA
