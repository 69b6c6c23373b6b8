// Times of products, for the choice between their implementations.
#pragma once
#include <array>
#include <cstdlib>
#include <memory>

#include "kernels/products/products.h"

namespace nn::products {

struct Product {
    bool trans_a, trans_b;
    int64_t m, n, k;
};
constexpr double gflop(const Product& p) { return 2e-9 * double(p.m) * double(p.n) * double(p.k); }

// Seconds by way; 0: not measured.
using Seconds = std::array<double, ways>;

// As in a training step, the operands are aligned as tiles are, and not in the L2 cache. Products
// of bf16 are stored as there: in bf16, but gradients of weights in f32.
class Stopwatch {
public:
    // The fastest of so many rounds on the calling thread, with each way that can compute the
    // product. They take turns, as other programs may disturb. Throws std::bad_alloc.
    Seconds seconds(const Product& product, bool bf16, int rounds);

private:
    // Memory for at least 16 MB of numbers; next() returns those that were not used for longest.
    class Ring {
    public:
        float* next(int64_t count);

    private:
        std::unique_ptr<float, decltype(&std::free)> memory_{nullptr, std::free};
        int64_t size_ = 0, at_ = 0;
    };
    void compute(const Product& product, Way way, bool bf16);
    Ring operands_, results_;
};

// The fastest; OpenBLAS if none was measured. A way must be clearly faster than those before it, so
// that noise of the measurement seldom changes the choice, and with it the last bits of results.
// Own loops come before oneDNN: at equal rates on one thread, steps on all threads are faster with
// them.
Way fastest(const std::array<double, ways>& rates);

}  // namespace nn::products
