// The products of attention in bf16 on the processor's units for it. Queries, keys, values and
// the gradient of the output are read where they are; weights are rounded to bf16, sums are f32.
#pragma once
#include "kernels/cpu/row.h"
#include "kernels/products/products.h"

namespace nn::NN_TARGET {
namespace {

// op(a) with rows `ld` apart.
struct Matrix {
    const bf16* data;
    int64_t ld;
    bool transposed = false;
};

// What multiplies a tile's matrices; nullptr: convert them to f32. Sums in place need heads of
// whole vectors.
template <class T> products::MultiplyFn units_for(int64_t head_dim) {
    if (!std::is_same_v<T, bf16> || head_dim % products::sums_multiple != 0) return nullptr;
    return products::bf16_multiply(products::choice().bf16);
}

// c (m, n) = scale a b, with k terms a sum; with `add`, c += a b. Rows of c are `ld` apart and
// have room for n rounded up to whole vectors, where zeros are stored.
struct UnitProduct {
    products::MultiplyFn multiply;
    float scale = 1;
    bool add = false;

    void operator()(int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float* c,
                    int64_t ld) const {
        using products::Block;
        const auto finish = [](void* self, const Block& block) {
            const float scale = static_cast<const UnitProduct*>(self)->scale;
            for (int64_t i = 0; i < block.rows && scale != 1; ++i) {
                float* const c = block.c + i * block.ld;
                simd_for(block.cols, [=](int64_t j) { c[j] *= scale; });
            }
        };
        multiply(
            {a.transposed, b.transposed, m, n, k, &a.data->bits, a.ld, &b.data->bits, b.ld},
            {const_cast<UnitProduct*>(this), add ? products::keep_sums : nullptr, finish, c, ld});
    }
};

}  // namespace
}  // namespace nn::NN_TARGET
