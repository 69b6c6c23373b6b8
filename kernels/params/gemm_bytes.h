// The parameters of products of matrices of bytes (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// C (m,n) = A B^T diag(scale) + bias(n), with gelu GELU of that, for A (m,k) and B (n,k) of bytes:
// a byte b stands for b - 128, which is multiplied by the scale of its row of B.
typedef struct {
    int64_t m, n, k;
    int32_t gelu;
} nn_gemm_bytes_params;
// </cdef>
