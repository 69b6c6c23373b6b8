// Tensor cores for bf16: products of 16 x 16 by 16 x 8 blocks by a warp, loads of their operands
// from shared memory, and asynchronous copies into shared memory. The registers of the lanes hold a
// block's elements as the PTX ISA states (mma.m16n8k16, ldmatrix); with g = lane / 4, t = lane % 4:
//   A (16 x 16)  a[0] = (g, 2t..), a[1] = (g + 8, 2t..), a[2] = (g, 2t + 8..),
//                a[3] = (g + 8, 2t + 8..)
//   B (16 x 8)   b[0] = (2t.., g), b[1] = (2t + 8.., g)
//   C (16 x 8)   c[0], c[1] = (g, 2t..), c[2], c[3] = (g + 8, 2t..)
#pragma once
#include "kernels/cuda/cuda.cuh"

namespace nn::NN_TARGET {
namespace {

#ifdef __CUDACC__

// c += a b
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8 x 8 blocks; lane i gives row i % 8 of block i / 8. r[k]: elements (g, 2t..) of block k, or
// transposed (2t.., g).
__device__ inline void load_blocks(uint32_t (&r)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(row)))
                 : "memory");
}
__device__ inline void load_blocks_transposed(uint32_t (&r)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(row)))
                 : "memory");
}
// 16 bytes from global to shared memory, or zeros; complete after copies_end() and copies_wait().
__device__ inline void copy16(bf16* to, const bf16* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     uint32_t(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from)), "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ inline void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `pending` groups of this thread's copies are incomplete.
template <int pending> __device__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
__device__ inline float exp2_fast(float x) {  // 2^x within 2 ulp, 0 for -infinity
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Two floats as bf16, the first in the lower half.
__device__ inline uint32_t pack2(float low, float high) {
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

#else

inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    test::emulated_mma(c, a, b0, b1);
}
inline void load_blocks(uint32_t (&r)[4], const bf16* row) {
    test::emulated_ldmatrix(r, row, false);
}
inline void load_blocks_transposed(uint32_t (&r)[4], const bf16* row) {
    test::emulated_ldmatrix(r, row, true);
}
inline void copy16(bf16* to, const bf16* from, bool valid) { test::async_copy(to, from, valid); }
inline void copies_end() { test::async_commit(); }
template <int pending> void copies_wait() { test::async_wait(pending); }
inline float exp2_fast(float x) { return std::exp2(x); }
inline uint32_t pack2(float low, float high) {
    return uint32_t(round_to_bf16(low).bits) | uint32_t(round_to_bf16(high).bits) << 16;
}

#endif

// This lane's two rows in a block of 64: g and g + 8 of its warp's 16.
__device__ inline int my_row(int half) {
    return int(threadIdx.x / 32) * 16 + int(threadIdx.x % 32) / 4 + half * 8;
}

// Rows of `dim` (64 or 128) elements in shared memory. Chunks of 16 bytes are permuted within a
// row, depending on its index, so that the eight rows of a load are in different banks.
template <int dim> struct SharedRows {
    bf16* data;
    __device__ bf16* chunk(int row, int number) const {
        return data + row * dim + (number ^ (row & 7)) * 8;
    }
    // The lane's row for load_blocks of a 16 x 16 block at (row, column), as operand A; transposed,
    // as operand B with k = rows: r[0], r[1] are columns 0 to 7, r[2], r[3] the others.
    __device__ const bf16* rows_first(int row, int column) const {
        const int lane = int(threadIdx.x) % 32;
        return chunk(row + lane % 16, column / 8 + lane / 16);
    }
    // The same as operand B with k = columns: r[0], r[1] are rows 0 to 7, r[2], r[3] the others.
    __device__ const bf16* columns_first(int row, int column) const {
        const int lane = int(threadIdx.x) % 32;
        return chunk(row + lane % 8 + lane / 16 * 8, column / 8 + lane / 8 % 2);
    }
    // Starts to copy `count` rows, `stride` apart. Rows from `valid` on become zeros.
    __device__ void copy(const bf16* from, int64_t stride, int count, int64_t valid) const {
        constexpr int chunks = dim / 8;
        for (int c = int(threadIdx.x); c < count * chunks; c += int(blockDim.x)) {
            const int row = c / chunks, number = c % chunks;
            const bool good = row < valid;
            copy16(chunk(row, number), from + (good ? row * stride + number * 8 : 0), good);
        }
    }
};

// c (16, columns) = rows [row, row + 16) of a times b^T; b has `columns` rows.
template <int dim, int columns>
__device__ void multiply_rows(const SharedRows<dim>& a, int row, const SharedRows<dim>& b,
                              float (&c)[columns / 8][4]) {
#pragma unroll
    for (int n = 0; n < columns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[n][e] = 0;
#pragma unroll
    for (int d = 0; d < dim / 16; ++d) {
        uint32_t left[4], right[4];
        load_blocks(left, a.rows_first(row, 16 * d));
#pragma unroll
        for (int n = 0; n < columns / 8; n += 2) {
            load_blocks(right, b.columns_first(8 * n, 16 * d));
            mma(c[n], left, right[0], right[1]);
            mma(c[n + 1], left, right[2], right[3]);
        }
    }
}

// sum (16, dim) += x (16, depth), rounded to bf16, times b (depth, dim).
template <int dim, int depth>
__device__ void accumulate(const float (&x)[depth / 8][4], const SharedRows<dim>& b,
                           float (&sum)[dim / 8][4]) {
#pragma unroll
    for (int k = 0; k < depth / 16; ++k) {
        const uint32_t left[4] = {pack2(x[2 * k][0], x[2 * k][1]), pack2(x[2 * k][2], x[2 * k][3]),
                                  pack2(x[2 * k + 1][0], x[2 * k + 1][1]),
                                  pack2(x[2 * k + 1][2], x[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < dim / 8; n += 2) {
            uint32_t right[4];
            load_blocks_transposed(right, b.rows_first(16 * k, 8 * n));
            mma(sum[n], left, right[0], right[1]);
            mma(sum[n + 1], left, right[2], right[3]);
        }
    }
}

}  // namespace
}  // namespace nn::NN_TARGET
