// The choice among cuBLASLt's algorithms, on the emulated device.
#include "kernels/params/gemm.h"
#include "tests/cpp/kernel_test.h"
#include "tests/emulated/blaslt_twin.h"

using namespace nn;
using namespace nn::test;

TEST_CASE("products run by the fastest algorithm, and by another one if that is refused") {
    const Variant cuda{emulated_device()->target, Dtype::f32, emulated_device()};
    const int64_t m = 33, n = 65, k = 24000;
    for (double beta : {0.0, 2.0}) {
        INFO("beta " << beta);
        const nn_gemm_params p{m, n, k, k, n, n, 1, 0, 0, 0, 1, beta, 0, 0, 0, 0, 0};
        Tile a(Dtype::f32, Values(m * k, 1)), b(Dtype::f32, Values(k * n, 0.5)),
            c(Dtype::f32, Values(m * n, 3));
        REQUIRE(run(cuda, "gemm", p, {&c, &a, &b, nullptr, nullptr}) == "");
        CHECK(emulated::used_algorithm == 1);
        CHECK(c.values() == Values(m * n, 12000 + 3 * beta));
        REQUIRE(run(cuda, "gemm", p, {&c, &a, &b, nullptr, nullptr}) == "");
        CHECK(emulated::used_algorithm == 1);
    }
    Tile a(Dtype::f32, {1, 2, 3}), b(Dtype::f32, {4, 5, 6}), c(Dtype::f32, {0});
    const nn_gemm_params p{1, 1, 3, 3, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    REQUIRE(run(cuda, "gemm", p, {&c, &a, &b, nullptr, nullptr}) == "");
    CHECK(emulated::used_algorithm == 1);
    CHECK(c[0] == 32);
}
