// For tests of what uses matrix products: runs them with every implementation of products.
#pragma once
#include "kernels/products/products.h"
#include "tests/cpp/kernel_test.h"

namespace nn::test {

// Calls f(variant) with each implementation for each dtype, on the best CPU target.
template <class F> void each_way(F f) {
    const products::Choice before = products::choice();
    for (const products::Way way : {products::Way::openblas, products::Way::onednn,
                                    products::Way::loops, products::Way::matmul})
        for (Dtype dtype : {Dtype::f32, Dtype::bf16}) {
            if (!products::why_unusable(way, dtype == Dtype::bf16).empty()) continue;
            INFO(products::way_name(way) << ", " << dtype_name(dtype));
            products::choose({way, way, "a test"});
            f(Variant{&cpu_target(), dtype});
        }
    products::choose(before);
}

}  // namespace nn::test
