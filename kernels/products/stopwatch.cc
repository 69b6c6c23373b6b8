#include "kernels/products/stopwatch.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <new>
#include <utility>

namespace nn::products {
namespace {

// A matrix of bf16 whose rows are `ld` apart.
struct Destination {
    uint16_t* c;
    int64_t ld;
};

// Stores a block in 16 bits, as layers do. Not rounded, which makes no difference here.
void store_block(void* context, const Block& block) {
    const auto& [c, ld] = *static_cast<const Destination*>(context);
    for (int64_t i = 0; i < block.rows; ++i) {
        const float* const from = block.c + i * block.ld;
        uint16_t* const to = c + (block.i + i) * ld + block.j;
        for (int64_t j = 0; j < block.cols; ++j)
            to[j] = uint16_t(std::bit_cast<uint32_t>(from[j]) >> 16);
    }
}

}  // namespace

float* Stopwatch::Ring::next(int64_t count) {
    constexpr int64_t least = 4 << 20, alignment = 4096;
    if (count > size_) {
        constexpr float two_ones = 0x1.007f00p0f;  // 1 in bf16, twice
        size_ = std::max(least, (count + alignment - 1) / alignment * alignment);
        memory_.reset(static_cast<float*>(
            std::aligned_alloc(size_t(alignment), size_t(size_) * sizeof(float))));
        if (!memory_) throw std::bad_alloc();
        std::fill(memory_.get(), memory_.get() + size_, two_ones);
        at_ = 0;
    }
    at_ = at_ + count <= size_ ? at_ : 0;
    return memory_.get() + std::exchange(at_, (at_ + count + 15) / 16 * 16);
}

void Stopwatch::compute(const Product& p, Way way, bool bf16) {
    const int64_t lda = p.trans_a ? p.m : p.k, ldb = p.trans_b ? p.k : p.n;
    if (bf16) {
        const auto* const a =
            reinterpret_cast<const uint16_t*>(operands_.next((p.m * p.k + p.n * p.k + 1) / 2));
        // Gradients of weights stay f32.
        const bool in_place = p.trans_a && p.n % sums_multiple == 0;
        float* const c = results_.next(in_place ? p.m * p.n : (p.m * p.n + 1) / 2);
        Destination stored{reinterpret_cast<uint16_t*>(c), p.n};
        Epilogue epilogue{&stored, nullptr, store_block};
        if (in_place) epilogue = {nullptr, nullptr, keep_sums, c, p.n};
        bf16_multiply(way)({p.trans_a, p.trans_b, p.m, p.n, p.k, a, lda, a + p.m * p.k, ldb},
                           epilogue);
    } else {
        const float* const a = operands_.next(p.m * p.k + p.n * p.k);
        gemm(way, p.trans_a, p.trans_b, p.m, p.n, p.k, 1, a, lda, a + p.m * p.k, ldb, 0,
             results_.next(p.m * p.n), p.n);
    }
}

Seconds Stopwatch::seconds(const Product& product, bool bf16, int rounds) {
    Seconds out{};
    for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < ways; ++i) {
            // With openblas, bf16 is converted: it is chosen only if nothing else is usable.
            if (!why_unusable(Way(i), bf16).empty() || (bf16 && Way(i) == Way::openblas)) continue;
            const auto start = std::chrono::steady_clock::now();
            compute(product, Way(i), bf16);
            const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
            double& best = out[size_t(i)];
            best = std::max(1e-9, best == 0 ? taken.count() : std::min(best, taken.count()));
        }
    return out;
}

Way fastest(const std::array<double, ways>& rates) {
    constexpr double clearly = 1.05;
    Way best = Way::openblas;
    for (Way way : {Way::loops, Way::onednn, Way::matmul})
        if (rates[size_t(way)] > clearly * rates[size_t(best)]) best = way;
    return best;
}

}  // namespace nn::products
