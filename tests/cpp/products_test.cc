// Every implementation of products that this machine can use, against a plain product in double;
// the choice between them.
#include <thread>

#include "kernels/params/glu.h"
#include "kernels/products/onednn.h"
#include "tests/cpp/gemm_cases.h"
#include "tests/cpp/product_ways.h"

using namespace nn;
using namespace nn::test;
using products::Way;

namespace {

Case plain_case(int64_t m, int64_t n, int64_t k, int trans, double beta, int epilogue,
                int64_t pad = 0) {
    Case c = make_case(m, n, k, trans, beta, epilogue, pad);
    c.p.alpha = 1;
    return c;
}

}  // namespace

TEST_CASE("every implementation of products gives the plain product", "[sweep]") {
    Random random(11);
    const int64_t sizes[][3] = {{13, 1, 1},    {14, 32, 2},    {15, 33, 3},
                                {29, 65, 769}, {561, 40, 70},  {20, 530, 33},
                                {64, 16, 800}, {120, 97, 129}, {150, 170, 190}};
    each_way([&](const Variant& v) {
        for (const auto& size : sizes)
            for (int trans = 0; trans < 4; ++trans)
                for (double beta : {0.0, 1.0})
                    check_case(v, plain_case(size[0], size[1], size[2], trans, beta, 0, trans),
                               random);
        check_case(v, plain_case(520, 530, 790, 2, 0, 0), random);
        check_case(v, plain_case(16, 20, 0, 0, 0.5, 1, 2), random);
    });
}

namespace {

// Writes the product, then adds it to what is there, and to half of it.
void check_wide(const Variant& v, Case c, Random& random) {
    c.p.wide = 1;
    const double terms = double(c.p.k);
    Tile a = v.tile(random.values(c.rows_a() * c.p.lda));
    Tile b = v.tile(random.values(c.rows_b() * c.p.ldb));
    Tile out = Tile::poisoned(Dtype::f32, size_t(c.p.m * c.p.ldc));
    Values want = product(c, a.values(), b.values(), out.values(), {});
    CHECK(run(v, "gemm", c.p, {&out, &a, &b, nullptr, nullptr}) == "");
    check_close("first", out, want, terms * v.sum_eps());
    for (double beta : {1.0, 0.5}) {
        c.p.beta = beta;
        want = product(c, a.values(), b.values(), want, {});
        CHECK(run(v, "gemm", c.p, {&out, &a, &b, nullptr, nullptr}) == "");
        check_close("added", out, want, 2 * terms * v.sum_eps());
    }
}

}  // namespace

TEST_CASE("wide products of every implementation add to f32 results in place", "[sweep]") {
    Random random(14);
    each_way([&](const Variant& v) {
        if (v.dtype != Dtype::bf16) return;
        for (int trans = 0; trans < 4; ++trans) {
            for (int64_t n : {64, 160, 33})
                check_wide(v, plain_case(570, n, 401, trans, 0, 0, 3), random);
            check_wide(v, plain_case(20, 32, 8001, trans, 0, 0, 3), random);
        }
    });
}

TEST_CASE("epilogues work with every implementation of products") {
    Random random(12);
    each_way([&](const Variant& v) {
        for (int epilogue : {1, 2})
            for (double beta : {0.0, 0.5})
                check_case(v, plain_case(70, 150, 33, 2, beta, epilogue), random);
        check_case(v, plain_case(600, 530, 40, 2, 0, 2), random);
        check_slope_case(v, plain_case(570, 140, 33, 0, 0, 3), random);
        check_slope_case(v, plain_case(65, 530, 64, 0, 1, 3, 8), random);
        check_slope_case(v, plain_case(230, 530, 64, 0, 0, 3, 8), random);
        for (int32_t activation : {nn_glu_silu, nn_glu_gelu, nn_glu_gelu_exact}) {
            check_glu_case(v, plain_case(570, 140, 33, 0, 0, 4), activation, 0, random);
            check_glu_case(v, plain_case(65, 530, 64, 0, 1, 4), activation, 8, random);
        }
    });
}

TEST_CASE("infinities and NaN stay in their rows and columns with every implementation") {
    const auto check = [](const Variant& v, int64_t m, int64_t n, int64_t k) {
        Values a(size_t(m * k), 1.0), b(size_t(k * n), 1.0);
        a[size_t(5 * k + 35)] = INFINITY, b[size_t(34 * n + 7)] = NAN;
        Tile a_tile = v.tile(a), b_tile = v.tile(b), out = v.output(m * n);
        const Case c = plain_case(m, n, k, 0, 0, 0);
        CHECK(run(v, "gemm", c.p, {&out, &a_tile, &b_tile, nullptr, nullptr}) == "");
        Values want(size_t(m * n), double(k));
        for (int64_t j = 0; j < n; ++j) want[size_t(5 * n + j)] = INFINITY;
        for (int64_t i = 0; i < m; ++i) want[size_t(i * n + 7)] = NAN;
        check_close("c", out, want, 0);
    };
    each_way([&](const Variant& v) {
        check(v, 30, 40, 36);
        check(v, 150, 170, 191);
    });
}

TEST_CASE("every implementation gives the same bits from several threads at once") {
    Random random(13);
    each_way([&](const Variant& v) {
        const Case c = plain_case(150, 170, 530, 2, 0, 2);
        const Values a = random.values(c.rows_a() * c.p.lda),
                     b = random.values(c.rows_b() * c.p.ldb);
        const Values bias = random.values(c.p.n);
        const auto multiply = [&](std::vector<uint8_t>& bits) {
            Tile a_tile = v.tile(a), b_tile = v.tile(b), bias_tile = v.tile(bias);
            Tile out = v.output(c.p.m * c.p.ldc);
            void* operands[] = {out.data(), a_tile.data(), b_tile.data(), bias_tile.data(),
                                nullptr};
            std::string error;
            for (int i = 0; i < 5; ++i)
                find_kernel("gemm")->on (*v.target)({operands, &c.p, v.dtype, nullptr, &error});
            bits = out.bytes();
        };
        std::vector<uint8_t> alone, together[3];
        multiply(alone);
        std::vector<std::thread> threads;
        for (auto& bits : together) threads.emplace_back([&] { multiply(bits); });
        for (std::thread& thread : threads) thread.join();
        for (const auto& bits : together) CHECK(bits == alone);
    });
}

TEST_CASE("own loops are usable where the processor has AVX-512 BF16, oneDNN where it is found") {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    CHECK(products::why_unusable(Way::loops, true).empty() ==
          !!__builtin_cpu_supports("avx512bf16"));
#endif
    CHECK(products::why_unusable(Way::loops, false) == "own loops multiply bf16 only");
    CHECK(products::why_unusable(Way::openblas, true) == "");
    CHECK(products::why_unusable(Way::onednn, false) == onednn::why_unusable());
    CHECK(products::why_unusable(Way::matmul, false) == onednn::why_unusable());
    if (onednn::why_unusable().empty()) CHECK(onednn::version().find("oneDNN ") == 0);
}
