// oneDNN, opened with dlopen at the first use, so that nnlua also runs without it. It computes on
// the calling thread alone.
#pragma once
#include <algorithm>
#include <string>

#include "kernels/products/products.h"

namespace nn::onednn {

std::string why_unusable();  // "" if the library can be used; loads it
std::string version();       // "oneDNN 2.6.3"; only if it can be used

// By the library's gemm: any sizes.
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void multiply(const products::Operands& operands, const products::Epilogue& epilogue);

// By its matmul primitive (matmul.cc), for large products; multiply_by_matmul() leaves small ones
// to multiply(). It is also unusable if it computes a known product wrong.
std::string why_matmul_unusable(bool wants_bf16);
void matmul(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, bool add, const float* a,
            int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc);
void multiply_by_matmul(const products::Operands& operands, const products::Epilogue& epilogue);

// For these files.
void* find(const char* name);  // a function of the library, or nullptr
int major_version();
void compute_alone();           // makes the library compute on the calling thread alone
float* scratch(int64_t count);  // aligned; one per thread, never freed before the thread ends

// Calls product(block, a, b) for each block, with a and b at its first terms, and the epilogue.
// Blocks of 1 MB: the sums stay in the L2 cache, and packing A again for each block of columns
// costs a few percent. With `sums` the library chooses its own blocks.
template <class Product>
void multiply_by_blocks(const products::Operands& o, const products::Epilogue& epilogue,
                        Product product) {
    constexpr int64_t scratch_rows = 512, scratch_cols = 512;
    const bool whole = epilogue.sums;
    const int64_t most_rows = whole ? o.m : std::min(scratch_rows, o.m);
    const int64_t most_cols = whole ? o.n : std::min(scratch_cols, o.n);
    float* const c = whole ? epilogue.sums : scratch(most_rows * most_cols);
    const int64_t ld = whole ? epilogue.ld : most_cols;
    for (int64_t i = 0; i < o.m; i += most_rows)
        for (int64_t j = 0; j < o.n; j += most_cols) {
            const products::Block block{
                i, j, std::min(most_rows, o.m - i), std::min(most_cols, o.n - j), c, ld};
            if (epilogue.start) epilogue.start(epilogue.context, block);
            if (o.k > 0)
                product(block, o.a + (o.trans_a ? i : i * o.lda),
                        o.b + (o.trans_b ? j * o.ldb : j));
            epilogue.finish(epilogue.context, block);
        }
}

}  // namespace nn::onednn
