// Matrix products with epilogues for bias and GELU, forward and backward, and for the backward pass
// of gated linear units, as kernels/products computes them; for bfloat16 without a fast way, blocks
// converted to float; for the few rows of text generation, a loop that reads B once.
#include "kernels/params/gemm.h"

#include "kernels/blas.h"
#include "kernels/cpu/glu.h"
#include "kernels/math/activations.h"
#include "kernels/products/products.h"

namespace nn::NN_TARGET {
namespace {

// One matrix of the batch. aux is the argument of the activation: epilogue 2 writes it, those from
// 3 on read it. bias, aux and sums may be null. C is T, or Acc<T> with p.wide.
template <class T, class C = T> struct Product {
    const nn_gemm_params& p;
    C* c;
    const T* a;
    const T* b;
    const T* bias;
    T* aux;
    Acc<T>* sums;  // column sums of the result, with epilogues from 3 on
    const T* a_at(int64_t i, int64_t l) const {
        return p.trans_a ? a + l * p.lda + i : a + i * p.lda + l;
    }
    const T* b_at(int64_t l, int64_t j) const {
        return p.trans_b ? b + j * p.ldb + l : b + l * p.ldb + j;
    }
};

// Row i of out, columns [j, j + n): beta c + bias, to which the product is added. With beta 0 c is
// not read: it may hold NaN.
template <class T, class C>
void start_row(const Product<T, C>& g, int64_t i, int64_t j, int64_t n, Acc<T>* out) {
    const C* c = g.c + i * g.p.ldc + j;
    const T* bias = g.bias ? g.bias + j : nullptr;
    const Acc<T> beta = Acc<T>(g.p.beta);
    if (beta == 0 && !bias)
        row_fill(out, n, Acc<T>(0));
    else if (beta == 0)
        row_convert(bias, n, out);
    else if (!bias)
        simd_for(n, [=](int64_t l) { out[l] = beta * Acc<T>(c[l]); });
    else
        simd_for(n, [=](int64_t l) { out[l] = beta * Acc<T>(c[l]) + Acc<T>(bias[l]); });
}

// The product's row times GELU'(aux). Column sums are taken before the rounding to C.
template <class T, class C>
void finish_slope_row(const Product<T, C>& g, int64_t i, int64_t j, int64_t n, const Acc<T>* sum) {
    C* c = g.c + i * g.p.ldc + j;
    const T* pre = g.aux + i * g.p.ldc + j;
    const auto slope = [=](int64_t l) { return sum[l] * math::gelu_slope(Acc<T>(pre[l])); };
    if (!g.sums) return simd_for(n, [=](int64_t l) { c[l] = C(slope(l)); });
    Acc<T>* const sums = g.sums + j;
    simd_for(n, [=](int64_t l) {
        const Acc<T> d = slope(l);
        c[l] = C(d);
        sums[l] += d;
    });
}

// Stores the finished sums of row i, columns [j, j + n). `sum` may be that row of c or aux.
template <class T, class C>
void finish_row(const Product<T, C>& g, int64_t i, int64_t j, int64_t n, const Acc<T>* sum) {
    if (g.p.epilogue == 3) return finish_slope_row(g, i, j, n, sum);
    if (g.p.epilogue > 3)
        return glu_backward_row(g.p.epilogue - 4, sum, g.aux + i * g.p.ldc + j, g.p.n, n,
                                g.c + i * g.p.ldc + j, g.sums ? g.sums + j : nullptr);
    C* c = g.c + i * g.p.ldc + j;
    T* aux = g.p.epilogue == 2 && g.aux ? g.aux + i * g.p.ldc + j : nullptr;
    if (aux && static_cast<const void*>(aux) != sum) row_convert(sum, n, aux);
    if (g.p.epilogue == 2)
        simd_for(n, [=](int64_t l) { c[l] = C(math::gelu(sum[l])); });
    else if (static_cast<const void*>(c) != sum)
        row_convert(sum, n, c);
}

products::Way way_of(const nn_gemm_params& p, products::Way otherwise) {
    return p.way > 0 ? products::Way(p.way - 1) : otherwise;
}

void library_gemm(const Product<float>& g, float beta, float* out) {
    const nn_gemm_params& p = g.p;
    const products::Way way = way_of(p, products::choice().f32);
    products::gemm(way, p.trans_a, p.trans_b, p.m, p.n, p.k, float(p.alpha), g.a, p.lda, g.b, p.ldb,
                   beta, out, p.ldc);
}
void library_gemm(const Product<double>& g, double beta, double* out) {
    const nn_gemm_params& p = g.p;
    blas::gemm(p.trans_a, p.trans_b, p.m, p.n, p.k, p.alpha, g.a, p.lda, g.b, p.ldb, beta, out,
               p.ldc);
}

// float and double: the library adds the product to beta c + bias instead of beta c.
template <class T> void product_library(const Product<T>& g) {
    const nn_gemm_params& p = g.p;
    T* out = p.epilogue == 2 && g.aux ? g.aux : g.c;
    const bool started = p.epilogue == 1 || p.epilogue == 2;
    if (started)
        for (int64_t i = 0; i < p.m; ++i) start_row(g, i, 0, p.n, out + i * p.ldc);
    library_gemm(g, started ? T(1) : T(p.beta), out);
    if (p.epilogue)
        for (int64_t i = 0; i < p.m; ++i) finish_row(g, i, 0, p.n, out + i * p.ldc);
}

// to (rows, cols) = a block of a matrix whose rows are `ld` apart.
void convert_block(const bf16* from, int64_t ld, int64_t rows, int64_t cols, float* to) {
    for (int64_t i = 0; i < rows; ++i) row_convert(from + i * ld, cols, to + i * cols);
}

// bf16: blocks of a and b are converted to float; sums stay float until the last block of k is
// added. With blocks of 4 MB the conversion costs a few percent of the product.
template <class C> void product_blocks(const Product<bf16, C>& g) {
    constexpr int64_t block = 1024;
    static thread_local Scratch a_scratch, b_scratch, c_scratch;
    const nn_gemm_params& p = g.p;
    const int64_t m = std::min(block, p.m), n = std::min(block, p.n), k = std::min(block, p.k);
    float* a = a_scratch.get<float>(m * k);
    float* b = b_scratch.get<float>(k * n);
    float* c = c_scratch.get<float>(m * n);
    for (int64_t i = 0; i < p.m; i += m)
        for (int64_t j = 0; j < p.n; j += n) {
            const int64_t rows = std::min(m, p.m - i), cols = std::min(n, p.n - j);
            for (int64_t r = 0; r < rows; ++r) start_row(g, i + r, j, cols, c + r * n);
            for (int64_t l = 0; l < p.k; l += k) {
                const int64_t depth = std::min(k, p.k - l);
                const int64_t lda = p.trans_a ? rows : depth, ldb = p.trans_b ? depth : cols;
                convert_block(g.a_at(i, l), p.lda, p.trans_a ? depth : rows, lda, a);
                convert_block(g.b_at(l, j), p.ldb, p.trans_b ? cols : depth, ldb, b);
                products::gemm(products::choice().f32, p.trans_a, p.trans_b, rows, cols, depth,
                               float(p.alpha), a, lda, b, ldb, 1.0f, c, n);
            }
            for (int64_t r = 0; r < rows; ++r) finish_row(g, i + r, j, cols, c + r * n);
        }
}

void scale_block(double beta, const products::Block& block) {
    for (int64_t r = 0; r < block.rows && beta != 1; ++r) {
        float* const c = block.c + r * block.ld;
        simd_for(block.cols, [=](int64_t j) { c[j] *= float(beta); });
    }
}

// Prefetches what finish_row() reads and writes, except for `sum`: rows of c and aux are often
// pages apart, where the processor's own prefetching ends. Inlined, because GCC removes calls of
// functions that only prefetch.
template <class T, class C>
[[gnu::always_inline]] inline void prefetch_row(const Product<T, C>& g, int64_t i, int64_t j,
                                                int64_t n) {
    const int64_t at = i * g.p.ldc + j, parts = g.p.epilogue > 3 ? 2 : 1;  // gate and up
    for (int64_t part = 0; part < parts; ++part)
        for (int64_t l = part * g.p.n; l < part * g.p.n + n; l += 64 / int64_t(sizeof(C))) {
            __builtin_prefetch(g.c + at + l, 1, 3);
            if (g.aux) __builtin_prefetch(g.aux + at + l, 0, 3);
        }
}

// bf16 on the processor's units for it. Epilogues work on blocks in cache.
template <class C>
void product_units(const Product<bf16, C>& g, products::MultiplyFn multiply_blocks) {
    using products::Block;
    const nn_gemm_params& p = g.p;
    const auto start = [](void* context, const Block& block) {
        const auto& product = *static_cast<const Product<bf16, C>*>(context);
        for (int64_t r = 0; r < block.rows; ++r)
            start_row(product, block.i + r, block.j, block.cols, block.c + r * block.ld);
    };
    const auto finish = [](void* context, const Block& block) {
        const auto& product = *static_cast<const Product<bf16, C>*>(context);
        constexpr int64_t ahead = 6;
        for (int64_t r = 0; r < block.rows; ++r) {
            if (r + ahead < block.rows)
                prefetch_row(product, block.i + r + ahead, block.j, block.cols);
            finish_row(product, block.i + r, block.j, block.cols, block.c + r * block.ld);
        }
    };
    static_assert(sizeof(bf16) == sizeof(uint16_t));
    const products::Operands operands{p.trans_a != 0, p.trans_b != 0, p.m,        p.n,  p.k,
                                      &g.a->bits,     p.lda,          &g.b->bits, p.ldb};
    products::Epilogue epilogue{const_cast<Product<bf16, C>*>(&g), start, finish};
    if constexpr (std::is_same_v<C, float>)
        if (!p.epilogue && p.n % products::sums_multiple == 0) {
            epilogue.start = [](void* context, const Block& block) {
                scale_block(static_cast<const Product<bf16, C>*>(context)->p.beta, block);
            };
            epilogue.finish = products::keep_sums;
            epilogue.sums = g.c, epilogue.ld = p.ldc;
        }
    if (p.beta == 0 && !g.bias) epilogue.start = nullptr;
    multiply_blocks(operands, epilogue);
}

template <class C> void product_bf16(const Product<bf16, C>& g) {
    const products::MultiplyFn multiply_blocks =
        products::bf16_multiply(way_of(g.p, products::choice().bf16));
    if (multiply_blocks && g.p.alpha == 1)
        product_units(g, multiply_blocks);
    else
        product_blocks(g);
}

// sum (m, cols) += alpha x B for columns [j, j + cols); x is (m, k). Reads B once, in memory order.
template <class T, class C>
void stream_b(const Product<T, C>& g, const Acc<T>* x, int64_t j, int64_t cols, Acc<T>* sum) {
    const nn_gemm_params& p = g.p;
    const Acc<T> alpha = Acc<T>(p.alpha);
    const int64_t stored_rows = p.trans_b ? cols : p.k;
    for (int64_t r = 0; r < stored_rows; r += 4) {
        const int64_t rows = std::min(int64_t(4), stored_rows - r);
        const T* b = p.trans_b ? g.b_at(0, j + r) : g.b_at(r, j);
        for (int64_t i = 0; i < p.m; ++i) {
            if (p.trans_b)
                add_dots(x + i * p.k, b, p.ldb, rows, p.k, alpha, sum + i * cols + r,
                         r + 4 < stored_rows);
            else
                add_rows(x + i * p.k + r, b, p.ldb, rows, cols, alpha, sum + i * cols);
        }
    }
}

// A few rows: bound by reading B, which OpenBLAS's packing would read, write and read again. If B
// is stored transposed, threads share the columns in blocks of about 64 kB of B, 3 us of one core.
template <class T, class C> void product_few_rows(const Product<T, C>& g) {
    static thread_local Scratch x_scratch;
    const nn_gemm_params& p = g.p;
    const int64_t row_bytes = std::max<int64_t>(1, p.k * int64_t(sizeof(T)));
    const int64_t block = p.trans_b ? std::clamp<int64_t>(65536 / row_bytes & ~3, 4, 1024) : 1024;
    Acc<T>* const x = x_scratch.get<Acc<T>>(p.m * p.k);
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t l = 0; l < p.k; ++l) x[i * p.k + l] = Acc<T>(*g.a_at(i, l));
    parallel_for((p.n + block - 1) / block, [=, &g](int64_t begin, int64_t end) {
        static thread_local Scratch sum_scratch;
        const int64_t last = std::min(end * block, g.p.n);
        for (int64_t j = begin * block; j < last; j += 1024) {
            const int64_t cols = std::min<int64_t>(1024, last - j);
            Acc<T>* const sum = sum_scratch.get<Acc<T>>(g.p.m * cols);
            for (int64_t i = 0; i < g.p.m; ++i) start_row(g, i, j, cols, sum + i * cols);
            stream_b(g, x, j, cols, sum);
            for (int64_t i = 0; i < g.p.m; ++i) finish_row(g, i, j, cols, sum + i * cols);
        }
    });
}

template <class T, class C> void multiply(const Product<T, C>& g) {
    if (g.p.m <= team::few_rows)
        product_few_rows(g);
    else if constexpr (std::is_same_v<T, bf16>)
        product_bf16(g);
    else
        product_library(g);
}

template <class T, class C> void multiply_batch(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    for (int64_t i = 0; i < p.batch; ++i) {
        T* aux = call.operand<T>(4);
        multiply(Product<T, C>{p, call.operand<C>(0) + i * p.stride_c,
                               call.input<T>(1) + i * p.stride_a, call.input<T>(2) + i * p.stride_b,
                               p.epilogue ? call.input<T>(3) : nullptr,
                               aux ? aux + i * p.stride_c : nullptr, nullptr});
    }
}

void gemm(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) {
        if constexpr (std::is_same_v<T, bf16>)
            if (call.get<nn_gemm_params>().wide) return multiply_batch<T, float>(call);
        multiply_batch<T, T>(call);
    });
}

// For results with `cols` columns.
void multiply_by_slopes(const KernelCall& call, int64_t cols) {
    const auto& p = call.get<nn_gemm_params>();
    visit_float(call.dtype, [&]<class T>(T*) {
        Acc<T>* const sums = call.operand<Acc<T>>(3);
        if (sums) row_fill(sums, cols, Acc<T>(0));
        multiply(Product<T>{p, call.operand<T>(0), call.input<T>(1), call.input<T>(2), nullptr,
                            call.operand<T>(4), sums});
    });
}

void gemm_dgelu(const KernelCall& call) { multiply_by_slopes(call, call.get<nn_gemm_params>().n); }
void gemm_dglu(const KernelCall& call) {
    multiply_by_slopes(call, 2 * call.get<nn_gemm_params>().n);
}

NN_IMPLEMENT(gemm, gemm_dgelu, gemm_dglu);

}  // namespace
}  // namespace nn::NN_TARGET
