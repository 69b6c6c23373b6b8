#include "engine/graph/gpu_cost.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/graph/task.h"
#include "kernels/params/attention.h"
#include "kernels/params/gemm.h"

namespace nn {
namespace {

// Of the rate of a copy: kernels that are bound by memory.
constexpr double share_of_copies = 0.75;

int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class P> P params_of(const TaskArg& arg) {
    P out;
    std::memcpy(&out, arg.params, sizeof out);
    return out;
}

// Blocks of a product's result. Each multiprocessor computes one at a time, so all take as many
// turns as the busiest. Smaller blocks reach less of the rate, because they load more per FLOP.
struct BlockSize {
    int64_t rows, cols;
    double share;
};
constexpr BlockSize block_sizes[] = {{128, 256, 1},   {256, 128, 1},   {128, 128, 0.9},
                                     {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.6}};

// The arithmetic of a product with the best size of blocks. If they are too few, k is split into
// parts, whose sums go through memory.
double seconds_of_blocks(const nn_gemm_params& p, const Rates& rates, double rate) {
    constexpr int64_t most_parts = 8, least_depth = 256;
    double best = std::numeric_limits<double>::infinity();
    for (const BlockSize& size : block_sizes)
        for (int64_t parts = 1; parts <= most_parts; parts *= 2) {
            if (parts > 1 && p.k < parts * least_depth) break;
            const int64_t blocks =
                p.batch * parts * ceil_of(p.m, size.rows) * ceil_of(p.n, size.cols);
            const double turns = double(ceil_of(blocks, rates.units));
            const double flops = 2.0 * double(size.rows * size.cols) * double(ceil_of(p.k, parts));
            const double sums = parts == 1 ? 0 : 8.0 * double(parts * p.batch) * double(p.m * p.n);
            best = std::min(best,
                            turns * flops * rates.units / (rate * size.share) + sums / rates.bytes);
        }
    return best;
}

// A block is stored after its last FLOP, which other blocks do not hide. A slope of GELU or of a
// gated unit takes a second kernel.
double seconds_of_product(const TaskArg& arg, const Rates& rates, double rate) {
    const auto p = params_of<nn_gemm_params>(arg);
    const double elements = double(p.batch) * double(p.m * p.n);
    const double size = p.wide ? 4 : double(dtype_size(arg.dtype));
    const double moved = p.epilogue == 3 ? 3 : p.epilogue > 3 ? 5 : 0;
    return seconds_of_blocks(p, rates, rate) +
           elements * size * (1 + moved / share_of_copies) / rates.bytes;
}

// Of the rate of products, as measured on an H200: cuDNN's kernels, its backward pass with atomics,
// and our kernels. With heads of 64, and of 128.
double attention_share(const TaskArg& arg, bool backward) {
    const auto p = params_of<nn_attention_params>(arg);
    const int wide = p.head_dim >= 128;
    const bool cudnn = arg.dtype == Dtype::bf16 && (p.head_dim == 64 || p.head_dim == 128) &&
                       p.dropout == 0 && p.window == 0 && p.backend != nn_attention_nnlua;
    constexpr double forward[][2] = {{0.18, 0.22}, {0.36, 0.6}};
    constexpr double gradient[][2] = {{0.13, 0.15}, {0.23, 0.3}}, with_atomics[] = {0.28, 0.47};
    if (!backward) return forward[cudnn][wide];
    return cudnn && p.backend == nn_attention_cudnn ? with_atomics[wide] : gradient[cudnn][wide];
}

}  // namespace

double gpu_seconds_of(const TaskArg& arg, const Rates& rates) {
    const Kernel& kernel = *arg.kernel;
    const double memory = double(arg.bytes) / (share_of_copies * rates.bytes);
    if (kernel.bound != Bound::products) return rates.start + memory;
    const bool tf32 = arg.dtype == Dtype::f32 && kernel.allows_tf32(arg.params);
    const double rate = tf32 ? rates.tf32 : rates.products(arg.dtype);
    double products = double(arg.flops) / rate;
    if (kernel.params_type == "nn_gemm_params")
        products = seconds_of_product(arg, rates, rate);
    else if (kernel.params_type == "nn_attention_params")
        products /= attention_share(arg, kernel.name == "attention_backward");
    return rates.start + std::max(products, memory);
}

}  // namespace nn
