// Products with weights of 8 bits, for generating text: see kernels/cpu/quantized.cc. A warp
// computes one column of C for up to 8 rows of A, so it reads a row of B once for them.
#include "kernels/cuda/rows.cuh"
#include "kernels/math/activations.h"
#include "kernels/params/gemm_bytes.h"
#include "kernels/params/rows.h"

namespace nn::NN_TARGET {
namespace {

constexpr int rows_of_a = 8;       // for each reading of B
constexpr int bytes_at_once = 16;  // of B, by a lane

// aligned: rows of B begin at addresses that are multiples of 16.
template <class T>
__global__ void __launch_bounds__(threads)
    gemm_bytes_kernel(T* c, const T* a, const uint8_t* b, const Acc<T>* scale, const T* bias,
                      nn_gemm_bytes_params p, bool aligned) {
    using A = Acc<T>;
    const int64_t j = int64_t(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
    const int64_t first = int64_t(blockIdx.y) * rows_of_a;
    const int rows = j < p.n ? int(smaller<int64_t>(rows_of_a, p.m - first)) : 0;
    const uint8_t* const row = b + (j < p.n ? j : 0) * p.k;
    A sum[rows_of_a] = {};
    for (int64_t l = threadIdx.x % 32 * bytes_at_once; l < p.k && rows; l += 32 * bytes_at_once) {
        A value[bytes_at_once];
        load_run<bytes_at_once>(row + l, p.k - l, aligned, value);
        for (int i = 0; i < rows_of_a; ++i)
            for (int e = 0; e < bytes_at_once && i < rows; ++e)
                if (l + e < p.k)
                    sum[i] += (value[e] - A(128)) * A(number(a[(first + i) * p.k + l + e]));
    }
    for (int i = 0; i < rows_of_a; ++i) {
        const A total = warp_reduce(sum[i], Sum());
        if (i >= rows || threadIdx.x % 32) continue;
        const A y = total * scale[j] + (bias ? A(number(bias[j])) : A(0));
        c[(first + i) * p.n + j] = stored<T>(p.gelu ? math::gelu(y) : y);
    }
}

void gemm_bytes(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_bytes_params>();
    if (p.m * p.n == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        const void* const b = call.input<void>(2);
        dim3 blocks = blocks_for(p.n, threads / 32);
        blocks.y = unsigned(ceil_div(p.m, rows_of_a));
        launch(call, {blocks, threads}, gemm_bytes_kernel<T>, call.operand<T>(0), call.input<T>(1),
               b, call.input<Acc<T>>(3), call.input<T>(4), p, aligned(b) && p.k % 16 == 0);
    });
}

// A block computes a row.
template <class T>
__global__ void __launch_bounds__(threads)
    quantize_rows_kernel(uint8_t* y, Acc<T>* scales, const T* x, int64_t n, bool packed) {
    using A = Acc<T>;
    const int64_t start = int64_t(blockIdx.x) * n;
    y += start, x += start;
    A largest = 0, poison = 0;  // poison: NaN if the row has NaN or an infinity
    each_number<A>(x, start, n, packed, [&](A v, int64_t) {
        largest = Max()(largest, v < 0 ? -v : v);
        poison += v * A(0);
    });
    const A scale = block_reduce(largest, Max()) / A(127) + block_reduce(poison, Sum());
    const A divisor = scale > 0 ? scale : A(1);
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    each_number<A>(x, start, n, packed, [&](A v, int64_t j) {
        const A steps = std::nearbyint(v / divisor);
        y[j] = uint8_t(int32_t(steps < 127 ? steps > -127 ? steps : A(-127) : A(127)) + 128);
    });
}

void quantize_rows(const KernelCall& call) {
    const auto& p = call.get<nn_rows_params>();
    if (p.rows * p.cols == 0) return;
    visit_float(call.dtype, [&]<class T>(T*) {
        const T* const x = call.input<T>(2);
        const bool packed = aligned(x);
        launch(call, rows_shape<T>(p.rows, p.cols, packed), quantize_rows_kernel<T>,
               call.operand<uint8_t>(0), call.operand<Acc<T>>(1), x, p.cols, packed);
    });
}

NN_IMPLEMENT(gemm_bytes, quantize_rows);

}  // namespace
}  // namespace nn::NN_TARGET
