// OpenBLAS, opened with dlopen at the first use. Linking it would let it choose its kernels before
// main(), and OpenBLAS 0.3.21 takes recent Intel cores for the oldest: 34 instead of 160 GFLOP/s
// per core on Sapphire Rapids.
#pragma once
#include <cstdint>
#include <iosfwd>  // std::string, incomplete

namespace nn::blas {

// C (m,n) = alpha op(A) op(B) + beta C, row-major, on the calling thread. beta = 0: C is not read.
template <class T>  // float or double
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
          int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc);

// "OpenBLAS 0.3.21 (SkylakeX)"; loads the library.
std::string description();
// Loads OpenBLAS on the calling thread. Throws std::runtime_error with the files tried.
void load();

}  // namespace nn::blas
