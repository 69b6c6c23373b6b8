// oneDNN, opened with dlopen at the first use, so that nnlua also runs without it. It computes on
// the calling thread alone.
#pragma once
#include <string>

#include "kernels/products/products.h"

namespace nn::onednn {

std::string why_unusable();  // "" if the library can be used; loads it
std::string version();       // "oneDNN 2.6.3"; only if it can be used

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void multiply(const products::Operands& operands, const products::Epilogue& epilogue);

}  // namespace nn::onednn
