// bf16 products with vdpbf16ps, which adds two products per 32-bit lane. Both operands are packed
// in pairs along k: A in panels of 14 rows, B in panels of 32 columns, so the inner loop needs 28
// vectors of sums, two of B and broadcasts of A. Of every vector of A's panel 14 lanes are used.
#include "kernels/products/products.h"

#ifdef __AVX512BF16__

#include <immintrin.h>

#include "kernels/cpu/row.h"

namespace nn::products {
namespace {

using nn::NN_TARGET::Scratch;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t pairs_of(int64_t k) { return (k + 1) / 2; }

constexpr int64_t panel_rows = 14, panel_cols = sums_multiple;
// A block of sums (block_rows, block_cols) and of A (block_rows, depth) fit into the L2 cache, a
// panel of B (depth, panel_cols) into L1.
constexpr int64_t block_rows = 40 * panel_rows, block_cols = 4 * panel_cols, depth = 384;
constexpr int64_t most_packed = 2 << 20;  // elements of packed A

// The rows of a block: whole panels, about equal in all blocks.
int64_t rows_of_blocks(int64_t m, int64_t k) {
    const int64_t fitting = most_packed / (k + 1) / panel_rows * panel_rows;
    const int64_t most = smaller(block_rows, fitting < panel_rows ? panel_rows : fitting);
    const int64_t blocks = (m + most - 1) / most;
    const int64_t panels = (m + panel_rows - 1) / panel_rows;
    return (panels + blocks - 1) / blocks * panel_rows;
}

// rows[i] = lane i of the former rows.
void transpose(__m512i (&rows)[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; ++j) {
            rows[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; ++j) {
            t[i + j] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(rows[i + j], rows[i + j + 4], 0xDD);
        }
    for (int j = 0; j < 8; ++j) {
        rows[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
        rows[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xDD);
    }
}

// Packs up to 16 rows of a matrix whose rows are contiguous along k: pair p of row i goes to
// to[p * stride + i], with zeros for rows and elements that do not exist. Stores whole vectors.
void pack_rows(const uint16_t* from, int64_t ld, int64_t rows, int64_t k, uint32_t* to,
               int64_t stride) {
    for (int64_t l = 0; l < k; l += 32) {
        const __mmask32 mask = k - l >= 32 ? ~0u : (1u << (k - l)) - 1;
        __m512i r[16];
        for (int i = 0; i < 16; ++i)
            r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * ld + l)
                            : _mm512_setzero_si512();
        transpose(r);
        const int pairs = int(pairs_of(smaller(32, k - l)));
        if (pairs == 16) {  // mostly; with a constant number of stores r stays in registers
            for (int p = 0; p < 16; ++p) _mm512_storeu_si512(to + p * stride, r[p]);
        } else {
            for (int p = 0; p < pairs; ++p) _mm512_storeu_si512(to + p * stride, r[p]);
        }
        to += 16 * stride;
    }
}

// The same for up to 16 columns of a matrix whose columns are along k.
void pack_columns(const uint16_t* from, int64_t ld, int64_t cols, int64_t k, uint32_t* to,
                  int64_t stride) {
    const __mmask16 mask = __mmask16(cols >= 16 ? 0xFFFF : (1 << cols) - 1);
    const auto widened = [mask](const uint16_t* x) {
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, x));
    };
    for (int64_t l = 0; l < k; l += 2, from += 2 * ld, to += stride) {
        __m512i pair = widened(from);
        if (l + 1 < k) pair = _mm512_or_si512(pair, _mm512_slli_epi32(widened(from + ld), 16));
        _mm512_storeu_si512(to, pair);
    }
}

// c (R, 32) += a panel of A times a panel of B.
template <int R>
void multiply_panels(int64_t pairs, const uint32_t* a, const uint32_t* b, float* c, int64_t ld) {
    __m512 sums[R][2];
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i)
        sums[i][0] = _mm512_loadu_ps(c + i * ld), sums[i][1] = _mm512_loadu_ps(c + i * ld + 16);
    for (int64_t p = 0; p < pairs; ++p, a += panel_rows, b += panel_cols) {
        const __m512bh left = (__m512bh)_mm512_load_si512(b);
        const __m512bh right = (__m512bh)_mm512_load_si512(b + 16);
#pragma GCC unroll 14
        for (int i = 0; i < R; ++i) {
            const __m512bh x = (__m512bh)_mm512_set1_epi32(int(a[i]));
            sums[i][0] = _mm512_dpbf16_ps(sums[i][0], x, left);
            sums[i][1] = _mm512_dpbf16_ps(sums[i][1], x, right);
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
        _mm512_storeu_ps(c + i * ld, sums[i][0]);
        _mm512_storeu_ps(c + i * ld + 16, sums[i][1]);
    }
}

using PanelsFn = void (*)(int64_t, const uint32_t*, const uint32_t*, float*, int64_t);
constexpr PanelsFn panels_of_rows[] = {
    multiply_panels<1>,  multiply_panels<2>,  multiply_panels<3>,  multiply_panels<4>,
    multiply_panels<5>,  multiply_panels<6>,  multiply_panels<7>,  multiply_panels<8>,
    multiply_panels<9>,  multiply_panels<10>, multiply_panels<11>, multiply_panels<12>,
    multiply_panels<13>, multiply_panels<14>};

// Packs rows [i, i + rows) of op(A): for each stretch of `depth` its panels. `to` needs 16 lanes
// more, because whole vectors are stored.
void pack_a(const Operands& o, int64_t i, int64_t rows, uint32_t* to) {
    for (int64_t l = 0; l < o.k; l += depth) {
        const int64_t k = smaller(depth, o.k - l);
        for (int64_t r = 0; r < rows; r += panel_rows, to += panel_rows * pairs_of(k)) {
            const int64_t some = smaller(panel_rows, rows - r);
            if (o.trans_a)
                pack_columns(o.a + l * o.lda + i + r, o.lda, some, k, to, panel_rows);
            else
                pack_rows(o.a + (i + r) * o.lda + l, o.lda, some, k, to, panel_rows);
        }
    }
}

// Packs rows [l, l + k) and up to 32 columns from j on of op(B).
void pack_b(const Operands& o, int64_t l, int64_t k, int64_t j, uint32_t* to) {
    for (int64_t half = 0; half < panel_cols; half += 16) {
        const int64_t cols = smaller(16, o.n - j - half);
        if (cols <= 0)
            for (int64_t p = 0; p < pairs_of(k); ++p)
                _mm512_store_si512(to + p * panel_cols + half, _mm512_setzero_si512());
        else if (o.trans_b)
            pack_rows(o.b + (j + half) * o.ldb + l, o.ldb, cols, k, to + half, panel_cols);
        else
            pack_columns(o.b + l * o.ldb + j + half, o.ldb, cols, k, to + half, panel_cols);
    }
}

// Adds the product to a block; `a` holds its rows of op(A), packed.
void multiply_block(const Operands& o, const Block& block, const uint32_t* a, uint32_t* b) {
    for (int64_t l = 0; l < o.k; l += depth) {
        const int64_t k = smaller(depth, o.k - l), pairs = pairs_of(k);
        for (int64_t j = 0; j < block.cols; j += panel_cols) {
            pack_b(o, l, k, block.j + j, b);
            const uint32_t* panel = a;
            for (int64_t r = 0; r < block.rows; r += panel_rows, panel += panel_rows * pairs)
                panels_of_rows[smaller(panel_rows, block.rows - r) - 1](
                    pairs, panel, b, block.c + r * block.ld + j, block.ld);
        }
        a += (block.rows + panel_rows - 1) / panel_rows * panel_rows * pairs;
    }
}

}  // namespace

bool loops_built() { return true; }

void multiply_by_loops(const Operands& o, const Epilogue& epilogue) {
    static thread_local Scratch a_scratch, b_scratch, c_scratch;
    if (o.m == 0 || o.n == 0) return;
    const int64_t step = rows_of_blocks(o.m, o.k);
    uint32_t* const a = a_scratch.get<uint32_t>(step * pairs_of(o.k) + 16);
    uint32_t* const b = b_scratch.get<uint32_t>(depth / 2 * panel_cols);
    float* const c = epilogue.sums ? nullptr : c_scratch.get<float>(step * block_cols);
    for (int64_t i = 0; i < o.m; i += step) {
        const int64_t rows = smaller(step, o.m - i);
        pack_a(o, i, rows, a);
        for (int64_t j = 0; j < o.n; j += block_cols) {
            Block block{i, j, rows, smaller(block_cols, o.n - j), c, block_cols};
            if (epilogue.sums)
                block.c = epilogue.sums + i * epilogue.ld + j, block.ld = epilogue.ld;
            epilogue.start(epilogue.context, block);
            multiply_block(o, block, a, b);
            epilogue.finish(epilogue.context, block);
        }
    }
}

}  // namespace nn::products

#else  // for another kind of processor, or for a sanitizer that needs no second set of kernels

namespace nn::products {

bool loops_built() { return false; }
void multiply_by_loops(const Operands&, const Epilogue&) {}

}  // namespace nn::products

#endif
