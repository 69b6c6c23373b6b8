// Products of matrices that fit the L1 or L2 cache, as attention needs them: nothing is packed, and
// terms that are known to be 0 are left out. For these sizes OpenBLAS takes up to 1.6 times as long
// (measured with AVX2), and it cannot skip the half that a causal mask hides.
#pragma once
#include "kernels/cpu/cpu.h"

namespace nn::NN_TARGET {
namespace {

// Rows of scratch matrices are a multiple of this many elements apart: whole vectors.
constexpr int64_t lane_multiple = 16;
constexpr int64_t padded(int64_t n) {
    return (n + lane_multiple - 1) / lane_multiple * lane_multiple;
}

// A block of the result stays in registers: row_group rows, each of one or two vectors.
#if defined(__AVX512F__)
constexpr int64_t vector_bytes = 64, row_group = 8;
#elif defined(__AVX__)
constexpr int64_t vector_bytes = 32, row_group = 4;
#else
constexpr int64_t vector_bytes = 16, row_group = 4;
#endif
static_assert(lane_multiple % row_group == 0);
template <class A>
using Vector [[gnu::vector_size(vector_bytes), gnu::aligned(sizeof(A)), gnu::may_alias]] = A;

template <class A> constexpr int64_t vector_width = vector_bytes / int64_t(sizeof(A));
template <class A>
constexpr int64_t vectors_per_block = std::min<int64_t>(2, lane_multiple / vector_width<A>);

struct Range {
    int64_t begin, end;
};

// Element (i, l) of the left matrix is data[i * row_stride + l * term_stride].
template <class A> struct LeftMatrix {
    const A* data;
    int64_t row_stride, term_stride;
};

// c = or += the sum over the terms, for rows [i, i + rows) of a and the vectors of columns at b; c
// is at the first of these rows.
template <int rows, class A>
[[gnu::always_inline]] inline void multiply_block(LeftMatrix<A> a, int64_t i, const A* b,
                                                  int64_t ldb, Range terms, bool add, A* c,
                                                  int64_t ldc) {
    using V = Vector<A>;
    constexpr int64_t width = vector_width<A>, count = vectors_per_block<A>;
    V sums[rows][count];
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < count; ++v)
            sums[r][v] = add ? *reinterpret_cast<const V*>(c + r * ldc + v * width) : V{};
    for (int64_t l = terms.begin; l < terms.end; ++l) {
        V right[count];
        for (int v = 0; v < count; ++v)
            right[v] = *reinterpret_cast<const V*>(b + l * ldb + v * width);
        const A* left = a.data + i * a.row_stride + l * a.term_stride;
        for (int r = 0; r < rows; ++r, left += a.row_stride)
            for (int v = 0; v < count; ++v) sums[r][v] += *left * right[v];
    }
    for (int r = 0; r < rows; ++r)
        for (int v = 0; v < count; ++v) *reinterpret_cast<V*>(c + r * ldc + v * width) = sums[r][v];
}

// Likewise for rows [i, m), of which there are fewer than 2 * most; c is at row 0.
template <int most, class A>
void multiply_rest(LeftMatrix<A> a, int64_t i, int64_t m, const A* b, int64_t ldb, Range terms,
                   bool add, A* c, int64_t ldc) {
    if (i + most <= m) {
        multiply_block<most>(a, i, b, ldb, terms, add, c + i * ldc, ldc);
        i += most;
    }
    if constexpr (most > 1)
        if (i < m) multiply_rest<most / 2>(a, i, m, b, ldb, terms, add, c, ldc);
}

// c (m, n) = a b, or += with `add`; rows of b and c are ldb and ldc apart. For the rows of each
// group from row i on, terms(i) is the range of terms, and columns(i) that of columns, in multiples
// of lane_multiple; other columns stay as they are. Every sum is taken in the order of its terms.
template <class A, class Terms, class Columns>
void multiply_small(int64_t m, LeftMatrix<A> a, const A* b, int64_t ldb, bool add, A* c,
                    int64_t ldc, Terms terms, Columns columns) {
    constexpr int64_t step = vectors_per_block<A> * vector_width<A>;
    static_assert(lane_multiple % step == 0);
    for (int64_t i = 0; i < m; i += row_group) {
        const Range k = terms(i), n = columns(i);
        for (int64_t j = n.begin; j < n.end; j += step)
            if (i + row_group <= m)
                multiply_block<row_group>(a, i, b + j, ldb, k, add, c + i * ldc + j, ldc);
            else
                multiply_rest<row_group / 2>(a, i, m, b + j, ldb, k, add, c + j, ldc);
    }
}

}  // namespace
}  // namespace nn::NN_TARGET
