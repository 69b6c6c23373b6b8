// The one door to OpenBLAS. It is opened with dlopen at the first use, after the kernel family has
// been chosen from CPUID: OpenBLAS 0.3.21 takes recent Intel cores for the oldest ones and then
// runs five times too slow.
#pragma once
#include <cstdint>
#include <string>

namespace nn::blas {

// C (m,n) = alpha op(A) op(B) + beta C, row-major, on the calling thread only. beta = 0 ignores
// what C held.
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
          const double* a, int64_t lda, const double* b, int64_t ldb, double beta, double* c,
          int64_t ldc);

// "OpenBLAS 0.3.21 (SkylakeX)"; loads the library.
std::string description();
// Loads OpenBLAS now, on the calling thread; throws std::runtime_error naming what was tried when
// it is not there.
void load();

}  // namespace nn::blas
