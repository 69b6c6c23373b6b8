#include "engine/runtime/benchmark.h"

#include <cstring>

namespace nn {
namespace {

template <class P>
BenchmarkCall benchmark(const char* kernel, Dtype dtype, std::vector<size_t> operand_bytes,
                        const P& params) {
    BenchmarkCall out{find_kernel(kernel), dtype, std::move(operand_bytes), {}, 0, 0};
    static_assert(sizeof params <= sizeof out.params);
    std::memcpy(out.params, &params, sizeof params);
    for (size_t bytes : out.operand_bytes) out.bytes += double(bytes);
    return out;
}

}  // namespace

BenchmarkCall benchmark_product(int64_t size, Dtype dtype, bool tf32) {
    nn_gemm_params p{};
    p.m = p.n = p.k = p.lda = p.ldb = p.ldc = size;
    p.batch = 1, p.alpha = 1, p.tf32 = tf32;
    const size_t bytes = size_t(size * size) * dtype_size(dtype);
    BenchmarkCall out = benchmark("gemm", dtype, {bytes, bytes, bytes, 0, 0}, p);
    out.flops = 2.0 * double(size) * double(size) * double(size);
    return out;
}

BenchmarkCall benchmark_copy(int64_t bytes) {
    nn_copy_params p{};
    p.ndim = 1, p.extent[0] = bytes / 4, p.src_stride[0] = p.dst_stride[0] = 1;
    return benchmark("copy", Dtype::f32, {size_t(bytes), size_t(bytes)}, p);
}

Rates measured_rates(const BenchmarkRunner& run, int64_t product_size, int64_t copy_bytes,
                     bool tf32) {
    const auto product_rate = [&](Dtype dtype, bool use_tf32) {
        const BenchmarkCall call = benchmark_product(product_size, dtype, use_tf32);
        return call.flops / run(call);
    };
    Rates out;
    out.f32 = product_rate(Dtype::f32, false);
    out.f64 = product_rate(Dtype::f64, false);
    out.bf16 = product_rate(Dtype::bf16, false);
    out.tf32 = tf32 ? product_rate(Dtype::f32, true) : out.f32;
    const BenchmarkCall copy = benchmark_copy(copy_bytes);
    out.bytes = copy.bytes / run(copy);
    return out;
}

}  // namespace nn
