#include "engine/graph/gpu_cost.h"

#include <algorithm>
#include <limits>

#include "engine/graph/task.h"
#include "kernels/params/attention.h"
#include "kernels/params/gemm.h"

namespace nn {
namespace {

// Kernels that are bound by memory reach this share of the rate of copies.
constexpr double share_of_copies = 0.75;

int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Each multiprocessor computes one block of a product's result at a time, in waves. Smaller blocks
// reach a smaller share of the rate, because they load more per FLOP.
struct BlockSize {
    int64_t rows, cols;
    double share;
};
constexpr BlockSize block_sizes[] = {{128, 256, 1},   {256, 128, 1},   {128, 128, 0.9},
                                     {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.6}};

// The arithmetic of a product with the best size of blocks. If a wave is not full, k may be split
// into parts, whose sums are written and read in f32.
double seconds_of_waves(const nn_gemm_params& p, const Rates& rates, double rate) {
    constexpr int64_t most_parts = 8, least_depth = 256;
    double best = std::numeric_limits<double>::infinity();
    for (const BlockSize& size : block_sizes)
        for (int64_t parts = 1; parts <= most_parts; parts *= 2) {
            if (parts > 1 && p.k < parts * least_depth) break;
            const int64_t blocks =
                p.batch * parts * ceil_of(p.m, size.rows) * ceil_of(p.n, size.cols);
            const double waves = double(ceil_of(blocks, rates.multiprocessors));
            const double flops = 2.0 * double(size.rows * size.cols) * double(ceil_of(p.k, parts));
            const double wave = flops * rates.multiprocessors / (rate * size.share);
            const double sums = parts == 1 ? 0 : 8.0 * double(parts * p.batch) * double(p.m * p.n);
            best = std::min(best, waves * wave + sums / rates.bytes);
        }
    return best;
}

// Storing the result does not overlap with the arithmetic. The slope of GELU, or of a gated unit,
// is a second kernel.
double seconds_of_product(const TaskArg& arg, const Rates& rates, double rate) {
    const auto p = params_of<nn_gemm_params>(arg);
    const double elements = double(p.batch) * double(p.m) * double(p.n);
    const double size = p.wide ? 4 : double(dtype_size(arg.dtype));
    const double results = p.epilogue == 2 ? 2 : 1;  // GELU's argument is stored too
    const double moved = p.epilogue == 3 ? 3 : p.epilogue > 3 ? 5 : 0;
    return seconds_of_waves(p, rates, rate) +
           elements * size * (results + moved / share_of_copies) / rates.bytes;
}

// Shares of the rate of products with heads of 64 and of 128, as measured on an H200
// (docs/cuda.md). The last row is a guess, of the rate of products in f32.
struct AttentionShares {
    double forward[2], backward[2];
};
constexpr AttentionShares of_cudnn = {{0.36, 0.6}, {0.23, 0.3}},
                          with_atomics = {{0.36, 0.6}, {0.28, 0.47}},
                          of_tensor_cores = {{0.18, 0.22}, {0.13, 0.15}},
                          of_other_kernels = {{0.2, 0.2}, {0.2, 0.2}};

// Which kernels compute it is decided in kernels/cuda/attention_cudnn.cu and attention_mma.cu.
double seconds_of_attention(const TaskArg& arg, const Rates& rates, bool backward) {
    const auto p = params_of<nn_attention_params>(arg);
    const auto has = [&](int operand) { return arg.buffer_of[operand + (backward ? 2 : 0)] >= 0; };
    const bool mask = has(5), bias = has(6);
    const bool whole = !p.cross && p.q_start == p.k_start && p.q_len == p.k_len && p.q_len > 1 &&
                       (backward ? p.first_q && p.first_kv : p.first && p.last);
    const bool tensor_cores =
        arg.dtype == Dtype::bf16 && !p.window && !bias && (p.head_dim == 64 || p.head_dim == 128);
    const bool cudnn =
        tensor_cores && whole && !mask && p.dropout == 0 && p.backend != nn_attention_nnlua;
    const AttentionShares& shares = cudnn && p.backend == nn_attention_cudnn ? with_atomics
                                    : cudnn                                  ? of_cudnn
                                    : tensor_cores                           ? of_tensor_cores
                                                                             : of_other_kernels;
    const double share = (backward ? shares.backward : shares.forward)[p.head_dim == 128];
    const double rate = tensor_cores ? rates.bf16 : arg.dtype == Dtype::f64 ? rates.f64 : rates.f32;
    return double(arg.flops) / (share * rate);
}

}  // namespace

double gpu_seconds_of(const TaskArg& arg, const Rates& rates) {
    const Kernel& kernel = *arg.kernel;
    const double memory = double(arg.bytes) / (share_of_copies * rates.bytes);
    if (kernel.bound != Bound::products) return rates.start + memory;
    if (kernel.params_type == "nn_attention_params") {
        const bool backward = kernel.name == "attention_backward";
        return rates.start + std::max(seconds_of_attention(arg, rates, backward), memory);
    }
    const bool tf32 = arg.dtype == Dtype::f32 && kernel.allows_tf32(arg.params);
    const double rate = tf32 ? rates.tf32 : rates.products(arg.dtype);
    const bool is_gemm = kernel.params_type == "nn_gemm_params";
    const double products =
        is_gemm ? seconds_of_product(arg, rates, rate) : double(arg.flops) / rate;
    return rates.start + std::max(products, memory);
}

}  // namespace nn
