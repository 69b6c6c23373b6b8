// Weights of 8 bits: rounding of rows, and products against the formula in double.
#include "kernels/params/gemm_bytes.h"
#include "kernels/params/rows.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

void check_product(const Variant& v, int64_t m, int64_t n, int64_t k, bool biased, bool gelu,
                   Random& random) {
    INFO("m " << m << " n " << n << " k " << k << " bias " << biased << " gelu " << gelu);
    Tile a = v.tile(random.values(m * k)), bias = v.tile(random.values(n));
    Tile b(Dtype::u8, random.integers(n * k, 0, 255)), scale = v.sums(random.values(n)),
                                                       c = v.output(m * n);
    CHECK(run(v, "gemm_bytes", nn_gemm_bytes_params{m, n, k, gelu},
              {&c, &a, &b, &scale, biased ? &bias : nullptr}) == "");
    Values want(m * n), size(m * n);  // size: that of the terms, to which errors are relative
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0, terms = 0;
            for (int64_t l = 0; l < k; ++l) {
                const double term = a[i * k + l] * (b[j * k + l] - 128);
                sum += term, terms += std::abs(term);
            }
            const double y = sum * scale[j] + (biased ? bias[j] : 0);
            want[i * n + j] =
                gelu ? 0.5 * y * (1 + std::tanh(std::sqrt(2 / M_PI) * (y + 0.044715 * y * y * y)))
                     : y;
            size[i * n + j] = terms * std::abs(scale[j]) + 1;
        }
    for (int64_t i = 0; i < m * n; ++i) {
        const double bound = v.eps() * (std::abs(want[i]) + 1) +
                             v.sum_eps() * (size[i] * std::sqrt(double(k) + 1) + 10);
        REQUIRE(std::abs(c[i] - want[i]) <= bound);
    }
}

}  // namespace

TEST_CASE("gemm_bytes multiplies by bytes less 128, scaled by row, with bias and GELU") {
    Random random(31);
    each_variant([&](const Variant& v) {
        for (int64_t m : {1, 3, 12, 13})
            for (int64_t k : {1, 7, 64, 100}) check_product(v, m, 9, k, m != 3, m == 1, random);
        check_product(v, 1, 2, 0, true, false, random);
        if (slow(v)) return;
        check_product(v, 1, 1500, 256, true, false, random);
        check_product(v, 40, 700, 1000, true, true, random);
    });
}

TEST_CASE("quantize_rows rounds to multiples of a 127th of each row's largest value") {
    Random random(32);
    each_variant([&](const Variant& v) {
        for (int64_t cols : {1, 5, 16, 130}) {
            const int64_t rows = 4;
            Values values = random.values(rows * cols);
            for (int64_t j = 0; j < cols; ++j) values[cols + j] = 0;
            values[2 * cols] = NAN, values[4 * cols - 1] = INFINITY;
            Tile x = v.tile(values), y(Dtype::u8, Values(rows * cols)), scale = v.sum_output(rows);
            CHECK(run(v, "quantize_rows", nn_rows_params{rows, cols}, {&y, &scale, &x}) == "");
            CHECK(scale[1] == 0);
            CHECK(std::isnan(scale[2]));
            CHECK(std::isnan(scale[3]));
            double largest = 0;
            for (int64_t j = 0; j < cols; ++j) largest = std::max(largest, std::abs(x[j]));
            CHECK(scale[0] == Approx(largest / 127).epsilon(1e-6));
            for (int64_t j = 0; j < cols; ++j) {
                CHECK(y[cols + j] == 128);
                CHECK(std::abs((y[j] - 128) * scale[0] - x[j]) <= 0.5001 * scale[0]);
            }
        }
    });
}
