// bf16 products with vdpbf16ps, which adds two products per 32-bit lane. Both operands are packed
// in pairs along k: A in panels of 14 rows, B in panels of 32 columns, so the inner loop needs 28
// vectors of sums, two of B and broadcasts of A. Of every vector of A's panel 14 lanes are used.
#include "kernels/products/products.h"

#ifdef __AVX512BF16__

#include <immintrin.h>

#include <array>
#include <utility>

#include "kernels/cpu/row.h"

namespace nn::products {
namespace {

using nn::NN_TARGET::Scratch;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t pairs_of(int64_t k) { return (k + 1) / 2; }

constexpr int64_t panel_rows = 14, panel_cols = sums_multiple;
// A block of sums (block_rows, block_cols), a block of A (block_rows, depth) and a panel of B
// (depth, panel_cols) take at most 1.2 MB, about an L2 cache. With a smaller depth a panel of B
// would fit into L1, but the sums would be read and written more often, which takes more time.
constexpr int64_t block_rows = 40 * panel_rows, block_cols = 4 * panel_cols, depth = 768;
constexpr int64_t packed_lines = 16;      // of k, packed at a time
constexpr int64_t most_packed = 2 << 20;  // elements of packed A
constexpr int64_t most_depth = most_packed / block_rows;

// The rows of a block: whole panels, about equal in all blocks.
int64_t rows_of_blocks(int64_t m, int64_t k) {
    const int64_t fitting = most_packed / (k + 1) / panel_rows * panel_rows;
    const int64_t most = smaller(block_rows, fitting < panel_rows ? panel_rows : fitting);
    const int64_t blocks = (m + most - 1) / most;
    const int64_t panels = (m + panel_rows - 1) / panel_rows;
    return (panels + blocks - 1) / blocks * panel_rows;
}

// The rows of a stretch of k: about equal in all stretches, in whole cache lines.
int64_t stretch_of(int64_t k) {
    const int64_t stretches = (k + depth - 1) / depth;
    return stretches < 2 ? depth : ((k + stretches - 1) / stretches + 31) / 32 * 32;
}

// The size of a packed panel of A. Packing stores whole vectors, 2 lanes beyond its last row.
int64_t panel_size(int64_t k) { return (panel_rows * pairs_of(k) + 2 + 15) / 16 * 16; }

// The panels of a block of rows: about equal, so that none is too short to keep the units busy.
struct Panels {
    int64_t rows, count = (rows + panel_rows - 1) / panel_rows, height = (rows + count - 1) / count;
    int64_t first(int64_t panel) const { return panel * height; }
    int64_t rows_of(int64_t panel) const { return smaller(height, rows - panel * height); }
};

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
// Prefetches the same rows of what is `ahead` elements further.
void pack_rows(const uint16_t* from, int64_t ld, int64_t rows, int64_t k, int64_t ahead,
               uint32_t* to, int64_t stride) {
    for (int64_t l = 0; l < k; l += 32) {
        for (int64_t i = 0; ahead && i < rows; ++i)
            __builtin_prefetch(from + i * ld + l + ahead, 0, 3);
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
void pack_columns(const uint16_t* from, int64_t ld, int64_t cols, int64_t k, int64_t ahead,
                  uint32_t* to, int64_t stride) {
    const __mmask16 mask = __mmask16(cols >= 16 ? 0xFFFF : (1 << cols) - 1);
    const auto widened = [mask](const uint16_t* x) {
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, x));
    };
    for (int64_t l = 0; l < k; l += 2, from += 2 * ld, to += stride) {
        __builtin_prefetch(from + ahead, 0, 3), __builtin_prefetch(from + ld + ahead, 0, 3);
        __m512i pair = widened(from);
        if (l + 1 < k) pair = _mm512_or_si512(pair, _mm512_slli_epi32(widened(from + ld), 16));
        _mm512_storeu_si512(to, pair);
    }
}

// The same for up to 32 columns, with half the loads and without prefetching.
void pack_wide_columns(const uint16_t* from, int64_t ld, int64_t cols, int64_t k, uint32_t* to) {
    alignas(64) static constexpr auto pairs = [] {  // lane 0 of both rows, lane 1 of both, ...
        std::array<std::array<uint16_t, 32>, 2> out{};
        for (unsigned i = 0; i < 64; ++i) out[i / 32][i % 32] = uint16_t(i / 2 + i % 2 * 32);
        return out;
    }();
    const __m512i left = _mm512_load_si512(&pairs[0]), right = _mm512_load_si512(&pairs[1]);
    const __mmask32 mask = cols >= 32 ? ~0u : (1u << cols) - 1;
    for (int64_t l = 0; l < k; l += 2, from += 2 * ld, to += panel_cols) {
        const __m512i first = _mm512_maskz_loadu_epi16(mask, from);
        const __m512i second = _mm512_maskz_loadu_epi16(l + 1 < k ? mask : 0, from + ld);
        _mm512_store_si512(to, _mm512_permutex2var_epi16(first, left, second));
        _mm512_store_si512(to + 16, _mm512_permutex2var_epi16(first, right, second));
    }
}

// c (R, 32) = a panel of A times a panel of B, plus c with Add.
template <int R, bool Add>
void multiply_panels(int64_t pairs, const uint32_t* a, const uint32_t* b, float* c, int64_t ld) {
    __m512 sums[R][2];
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
        sums[i][0] = Add ? _mm512_loadu_ps(c + i * ld) : _mm512_setzero_ps();
        sums[i][1] = Add ? _mm512_loadu_ps(c + i * ld + 16) : _mm512_setzero_ps();
    }
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
template <bool Add, int... R>
constexpr std::array<PanelsFn, sizeof...(R)> panel_functions(std::integer_sequence<int, R...>) {
    return {multiply_panels<R + 1, Add>...};
}
// The functions for 1, 2, ... rows.
constexpr auto set_panels = panel_functions<false>(std::make_integer_sequence<int, panel_rows>());
constexpr auto add_panels = panel_functions<true>(std::make_integer_sequence<int, panel_rows>());

int64_t packed_size(int64_t rows, int64_t k) {
    const int64_t stretch = stretch_of(k);
    return (k + stretch - 1) / stretch * panel_size(stretch) * Panels{rows}.count;
}

// Packs rows [i, i + rows) of op(A): for each stretch of k its panels.
void pack_a(const Operands& o, int64_t i, int64_t rows, uint32_t* to) {
    const Panels panels{rows};
    for (int64_t l = 0, stretch = stretch_of(o.k); l < o.k; l += stretch) {
        const int64_t k = smaller(stretch, o.k - l), size = panel_size(k);
        if (o.trans_a) {  // some lines of k at a time, as panels share cache lines
            for (int64_t part = 0; part < k; part += packed_lines)
                for (int64_t r = 0; r < panels.count; ++r)
                    pack_columns(o.a + (l + part) * o.lda + i + panels.first(r), o.lda,
                                 panels.rows_of(r), smaller(packed_lines, k - part),
                                 packed_lines * o.lda, to + r * size + part / 2 * panel_rows,
                                 panel_rows);
        } else {
            for (int64_t r = 0; r < panels.count; ++r)
                pack_rows(o.a + (i + panels.first(r)) * o.lda + l, o.lda, panels.rows_of(r), k,
                          panels.height * o.lda, to + r * size, panel_rows);
        }
        to += panels.count * size;
    }
}

// A panel of op(B): rows [l, l + k), up to 32 columns from j on.
struct PanelB {
    int64_t l, k, j;
};

void pack_b(const Operands& o, const PanelB& panel, uint32_t* to) {
    const int64_t l = panel.l, k = panel.k, cols = smaller(panel_cols, o.n - panel.j);
    if (!o.trans_b) return pack_wide_columns(o.b + l * o.ldb + panel.j, o.ldb, cols, k, to);
    for (int64_t p = 0; cols <= 16 && p < pairs_of(k); ++p)
        _mm512_store_si512(to + p * panel_cols + 16, _mm512_setzero_si512());
    for (int64_t half = 0; half < cols; half += 16)
        pack_rows(o.b + (panel.j + half) * o.ldb + l, o.ldb, smaller(16, cols - half), k, 0,
                  to + half, panel_cols);
}

// Prefetches share `part` of `parts` of a panel of op(B), whose rows are far apart. Inlined,
// because GCC removes calls of functions that only prefetch.
[[gnu::always_inline]] inline void prefetch_b(const Operands& o, const PanelB& panel, int64_t part,
                                              int64_t parts) {
    if (o.trans_b) {
        const int64_t lines = (panel.k + 31) / 32,
                      count = lines * smaller(panel_cols, o.n - panel.j);
        for (int64_t x = count * part / parts; x < count * (part + 1) / parts; ++x)
            __builtin_prefetch(o.b + (panel.j + x / lines) * o.ldb + panel.l + x % lines * 32, 0,
                               3);
        return;
    }
    for (int64_t x = panel.k * part / parts; x < panel.k * (part + 1) / parts; ++x)
        __builtin_prefetch(o.b + (panel.l + x) * o.ldb + panel.j, 0, 2);
}

[[gnu::always_inline]] inline void prefetch_sums(const float* c, int64_t ld, int64_t rows) {
    for (int64_t i = 0; i < smaller(panel_rows, rows); ++i)
        for (int64_t j = 0; j < panel_cols; j += 16) __builtin_prefetch(c + i * ld + j, 1, 3);
}

// The panel after this one in the order in which multiply_block() uses them; k is 0 after the last.
PanelB next_panel(const Operands& o, const Block& block, PanelB at) {
    const int64_t stretch = stretch_of(o.k);
    at.j += panel_cols;
    if (at.j >= block.j + block.cols) {
        at.l += stretch, at.j = block.j;
        if (at.l >= o.k) at.l = 0, at.j = block.j + block.cols;
        if (at.j >= o.n) return {0, 0, 0};
    }
    at.k = smaller(stretch, o.k - at.l);
    return at;
}

// A block of sums. add: it holds what the product is added to; cold: it is not in cache yet.
struct Sums {
    Block block;
    bool add, cold;
};

// `a` holds the block's rows of op(A), packed.
void multiply_block(const Operands& o, const Sums& sums, const uint32_t* a, uint32_t* b) {
    const Block& block = sums.block;
    const Panels panels{block.rows};
    const int64_t stretch = stretch_of(o.k);
    for (int64_t l = 0; l < o.k; l += stretch) {
        const int64_t k = smaller(stretch, o.k - l), size = panel_size(k);
        const auto& functions = sums.add || l > 0 ? add_panels : set_panels;
        for (int64_t j = 0; j < block.cols; j += panel_cols) {
            const PanelB panel{l, k, block.j + j}, next = next_panel(o, block, panel);
            pack_b(o, panel, b);
            // The cache lines of different rows of an operand that is not transposed map to few
            // sets of the L1 cache.
            const int64_t parts = o.trans_b ? panels.count : smaller(8, panels.count);
            for (int64_t r = 0; r < panels.count; ++r) {
                float* const c = block.c + panels.first(r) * block.ld + j;
                if (sums.cold)
                    prefetch_sums(c + panels.height * block.ld, block.ld,
                                  block.rows - panels.first(r + 1));
                if (const int64_t part = r - panels.count + parts; next.k && part >= 0)
                    prefetch_b(o, next, part, parts);
                functions[size_t(panels.rows_of(r) - 1)](pairs_of(k), a + r * size, b, c, block.ld);
            }
        }
        a += panels.count * size;
    }
}

}  // namespace

bool loops_built() { return true; }

// Sums that stay in place are added to in passes over k, so that few blocks of rows suffice: each
// packs B again.
static void multiply_in_passes(const Operands& o, Epilogue epilogue) {
    const auto finish = epilogue.finish;
    const int64_t passes = (o.k + most_depth - 1) / most_depth, pass = (o.k + passes - 1) / passes;
    epilogue.finish = [](void*, const Block&) {};
    for (int64_t l = 0; l < o.k; l += pass) {
        Operands part = o;
        part.k = smaller(pass, o.k - l);
        part.a += o.trans_a ? l * o.lda : l;
        part.b += o.trans_b ? l : l * o.ldb;
        if (l + pass >= o.k) epilogue.finish = finish;
        multiply_by_loops(part, epilogue);
        epilogue.start = keep_sums;
    }
}

void multiply_by_loops(const Operands& o, const Epilogue& epilogue) {
    static thread_local Scratch a_scratch, b_scratch, c_scratch;
    if (o.m == 0 || o.n == 0) return;
    if (epilogue.sums && o.k > most_depth) return multiply_in_passes(o, epilogue);
    const int64_t step = rows_of_blocks(o.m, o.k);
    uint32_t* const a = a_scratch.get<uint32_t>(packed_size(step, o.k));
    uint32_t* const b = b_scratch.get<uint32_t>(depth / 2 * panel_cols);
    float* const c = epilogue.sums ? nullptr : c_scratch.get<float>(step * block_cols);
    for (int64_t i = 0; i < o.m; i += step) {
        const int64_t rows = smaller(step, o.m - i);
        pack_a(o, i, rows, a);
        for (int64_t j = 0; j < o.n; j += block_cols) {
            Block block{i, j, rows, smaller(block_cols, o.n - j), c, block_cols};
            if (epilogue.sums)
                block.c = epilogue.sums + i * epilogue.ld + j, block.ld = epilogue.ld;
            if (epilogue.start) epilogue.start(epilogue.context, block);
            multiply_block(o, {block, epilogue.start != nullptr, epilogue.sums != nullptr}, a, b);
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
