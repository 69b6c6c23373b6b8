// The parameters of matrix products (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// C (m,n) = alpha op(A) op(B) + beta C, `batch` times with the given strides between matrices.
// Row-major. epilogue: 0 none, 1 + bias(n), 2 tanh-GELU(. + bias), which stores its argument in
// `aux` if given. bias may be absent. wide: c has the accumulator dtype, f32 for bf16; no epilogue.
// tf32: f32 operands may be rounded to TF32 if the device multiplies that faster.
// way: 1 + a number of products::Way, by which a CPU computes it; 0: as chosen for the machine.
// gemm_dgelu: epilogue 3, C times GELU'(pre) for pre (m, n) laid out as C; sums (n), if given, are
// the column sums of that; batch 1.
// gemm_dglu: epilogue 4 + f, for f an nn_glu_silu, ...: C is the left half of dx (m, 2 n), and its
// value d becomes dx = [d u f'(g), d f(g)] for x (m, 2 n) = [g, u] laid out as dx; sums (2 n), if
// given, are the column sums of dx; batch 1.
typedef struct {
    int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
    double alpha, beta;
    int32_t trans_a, trans_b, epilogue, wide, tf32, way;
} nn_gemm_params;
// </cdef>
