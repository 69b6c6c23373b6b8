// gemm against a plain product in double: sizes, transposes, leading dimensions, alpha and beta,
// epilogues forward and backward, batches.
#include <thread>

#include "kernels/blas.h"
#include "kernels/params/glu.h"
#include "tests/cpp/gemm_cases.h"
#include "tests/cpp/product_ways.h"

using namespace nn;
using namespace nn::test;

TEST_CASE("gemm equals the plain product for ragged sizes, transposes and leading dimensions") {
    Random random(1);
    const int64_t sizes[][3] = {{1, 1, 1},    {1, 17, 5},   {2, 3, 65},   {3, 64, 17},
                                {4, 65, 64},  {5, 1, 33},   {12, 30, 31}, {13, 30, 31},
                                {17, 3, 1},   {64, 64, 64}, {65, 130, 7}, {33, 7, 129},
                                {7, 100, 64}, {128, 65, 96}};
    each_variant([&](const Variant& v) {
        for (const auto& size : sizes)
            for (int trans = 0; trans < 4; ++trans)
                for (double beta : {0.0, 1.0, -0.5})
                    check_case(v, make_case(size[0], size[1], size[2], trans, beta, 0, trans),
                               random);
    });
}

TEST_CASE("gemm adds the bias, applies GELU and stores its argument") {
    Random random(2);
    const int64_t sizes[][3] = {{1, 17, 5}, {3, 65, 33}, {5, 64, 17}, {65, 33, 64}, {300, 17, 9}};
    each_variant([&](const Variant& v) {
        for (const auto& size : sizes)
            for (int epilogue : {1, 2})
                for (int flags = 0; flags < 4; ++flags)
                    for (double beta : {0.0, 0.5}) {
                        Case c =
                            make_case(size[0], size[1], size[2], flags, beta, epilogue, flags & 1);
                        c.has_bias = flags & 1;
                        c.has_aux = epilogue == 2 && (flags & 2);
                        check_case(v, c, random);
                    }
    });
}

TEST_CASE("gemm_dgelu multiplies by GELU's slope and sums the columns", "[sweep]") {
    Random random(7);
    const int64_t sizes[][3] = {{1, 17, 5},   {3, 65, 33}, {5, 64, 17},     {65, 33, 64},
                                {300, 17, 9}, {64, 64, 0}, {1030, 1032, 3}, {0, 8, 5}};
    each_variant([&](const Variant& v) {
        for (const auto& size : sizes)
            for (int flags = 0; flags < 4; ++flags)
                for (double beta : {0.0, 0.5}) {
                    const Case c =
                        make_case(size[0], size[1], size[2], flags, beta, 3, 8 * (flags & 1));
                    check_slope_case(v, c, random);
                }
    });
}

TEST_CASE("gemm_dglu gives the gradients of gate and up and sums the columns", "[sweep]") {
    Random random(8);
    const int64_t sizes[][3] = {{1, 17, 5},   {3, 65, 33}, {5, 64, 17},   {65, 33, 64},
                                {300, 17, 9}, {64, 64, 0}, {1030, 70, 3}, {3, 1030, 2},
                                {0, 8, 5},    {65, 530, 7}};
    each_variant([&](const Variant& v) {
        for (const auto& [m, n, k] : sizes)
            for (int32_t activation : {nn_glu_silu, nn_glu_gelu, nn_glu_gelu_exact})
                for (double beta : {0.0, 0.5}) {
                    const int trans = int(m + activation) % 4;
                    check_glu_case(v, make_case(m, n, k, trans, beta, 4), activation,
                                   trans & 1 ? 8 : 0, random);
                }
    });
}

namespace {

// The bits of dx and its sums, from gemm_dglu or from gemm and glu_backward.
std::vector<uint8_t> glu_bits(const Variant& v, nn_gemm_params p, int32_t activation, bool fused) {
    Random random(9);
    Tile a = v.tile(random.values(p.m * p.k)), b = v.tile(random.values(p.k * p.n)),
         x = v.tile(random.values(2 * p.m * p.n, -4, 4)), dy = v.output(p.m * p.n),
         dx = v.output(2 * p.m * p.n), sums = v.sum_output(2 * p.n);
    if (fused) {
        p.ldc = 2 * p.n, p.epilogue = 4 + activation;
        CHECK(run(v, "gemm_dglu", p, {&dx, &a, &b, &sums, &x}) == "");
    } else {
        CHECK(run(v, "gemm", p, {&dy, &a, &b, nullptr, nullptr}) == "");
        CHECK(run(v, "glu_backward", nn_glu_params{p.m, p.n, activation, 1},
                  {&dx, &sums, &dy, &x}) == "");
    }
    std::vector<uint8_t> bits = dx.bytes();
    bits.insert(bits.end(), sums.bytes().begin(), sums.bytes().end());
    return bits;
}

}  // namespace

TEST_CASE("on CPUs gemm_dglu gives the bits of a product and glu_backward in f32 and f64") {
    const int64_t sizes[][3] = {{3, 65, 33}, {65, 33, 64}, {130, 257, 300}, {1030, 70, 3}};
    const auto check = [&](const Variant& v) {
        if (v.cuda || v.dtype == Dtype::bf16) return;  // bf16: a separate product rounds
        for (const auto& [m, n, k] : sizes)
            for (int32_t activation : {nn_glu_silu, nn_glu_gelu, nn_glu_gelu_exact}) {
                INFO("m " << m << " n " << n << " k " << k << " activation " << activation);
                const nn_gemm_params p = make_case(m, n, k, 0, 0, 0).p;
                CHECK(glu_bits(v, p, activation, true) == glu_bits(v, p, activation, false));
            }
    };
    each_variant(check, {Dtype::f32, Dtype::f64});
    each_way(check);
}

TEST_CASE("gemm computes every block of a large bf16 product", "[sweep]") {
    Random random(3);
    each_variant(
        [&](const Variant& v) {
            for (int trans = 0; trans < 4; ++trans)
                check_case(v, make_case(14, 1030, 1029, trans, 1, 1), random);
            check_case(v, make_case(1027, 33, 40, 2, 0, 2), random);
        },
        {Dtype::bf16});
}

TEST_CASE("gemm with `wide` accumulates bf16 products in f32 over calls") {
    Random random(6);
    each_variant(
        [&](const Variant& v) {
            for (int64_t m : {3, 65})
                for (int trans = 0; trans < 4; ++trans) {
                    Case c = make_case(m, 33, 70, trans, 0, 0, 2);
                    c.p.wide = 1;
                    Tile a = v.tile(random.values(c.rows_a() * c.p.lda));
                    Tile b = v.tile(random.values(c.rows_b() * c.p.ldb));
                    Tile out = Tile::poisoned(Dtype::f32, size_t(m * c.p.ldc));
                    const Values once = product(c, a.values(), b.values(), Values(m * c.p.ldc), {});
                    Values want = out.values();
                    for (int64_t i = 0; i < m; ++i)
                        for (int64_t j = 0; j < 33; ++j)
                            want[i * c.p.ldc + j] = 3 * once[i * c.p.ldc + j];
                    for (int call = 0; call < 3; ++call, c.p.beta = 1)
                        CHECK(run(v, "gemm", c.p, {&out, &a, &b, nullptr, nullptr}) == "");
                    for (int64_t i = 0; i < m; ++i)
                        for (int64_t j = 0; j < 33; ++j) {
                            const int64_t at = i * c.p.ldc + j;
                            REQUIRE(out[at] == Approx(want[at]).epsilon(1e-5).margin(1e-5));
                        }
                }
        },
        {Dtype::bf16});
}

TEST_CASE("gemm multiplies a batch with strides, where stride 0 repeats a matrix") {
    Random random(4);
    each_variant([&](const Variant& v) {
        for (int64_t m : {2, 16}) {
            const int64_t n = 5, k = 7, batch = 3;
            Case c = make_case(m, n, k, 2, 0, 1);
            c.p.batch = batch, c.p.stride_a = m * k + 1, c.p.stride_b = 0, c.p.stride_c = m * n;
            Tile a = v.tile(random.values(batch * (m * k + 1))), b = v.tile(random.values(n * k));
            Tile bias = v.tile(random.values(n)), out = v.output(batch * m * n);
            run(v, "gemm", c.p, {&out, &a, &b, &bias, nullptr});
            Values want, all = a.values(), got = out.values();
            for (int64_t i = 0; i < batch; ++i) {
                const Values part(all.begin() + i * c.p.stride_a,
                                  all.begin() + i * c.p.stride_a + m * k);
                const Values one = product(c, part, b.values(), Values(m * n), bias.values());
                want.insert(want.end(), one.begin(), one.end());
            }
            check_close("c", got, want, 2 * v.eps() + 8 * v.sum_eps());
        }
    });
}

TEST_CASE("gemm with k = 0 gives beta c and the bias") {
    each_variant([&](const Variant& v) {
        for (int64_t m : {2, 16}) {
            Case c = make_case(m, 3, 0, 2, 0, 1);
            c.p.lda = c.p.ldb = 1;
            Tile a = v.tile({0}), b = v.tile({0}), bias = v.tile({1, 2, 3}), out = v.output(m * 3);
            run(v, "gemm", c.p, {&out, &a, &b, &bias, nullptr});
            for (int64_t i = 0; i < m * 3; ++i) CHECK(out[i] == double(i % 3 + 1));
        }
    });
}

TEST_CASE("gemm gives the same bits from several threads at once") {
    Random random(5);
    const Variant v{&cpu_target(), Dtype::f32};
    const Case c = make_case(150, 70, 130, 2, 0, 2);
    const Values a = random.values(c.rows_a() * c.p.lda), b = random.values(c.rows_b() * c.p.ldb);
    const Values bias = random.values(c.p.n);
    const KernelFn gemm = find_kernel("gemm")->on(*v.target);
    const auto multiply = [&](Values& out) {
        Tile a_tile = v.tile(a), b_tile = v.tile(b), bias_tile = v.tile(bias);
        Tile c_tile = v.output(c.p.m * c.p.ldc);
        void* operands[] = {c_tile.data(), a_tile.data(), b_tile.data(), bias_tile.data(), nullptr};
        std::string error;
        for (int i = 0; i < 50; ++i) gemm({operands, &c.p, v.dtype, nullptr, &error});
        out = c_tile.values();
    };
    Values alone, together[4];
    multiply(alone);
    std::vector<std::thread> threads;
    for (Values& out : together) threads.emplace_back([&] { multiply(out); });
    for (std::thread& thread : threads) thread.join();
    for (const Values& out : together) CHECK(out == alone);
}

TEST_CASE("OpenBLAS uses the kernels for this CPU") {
    const std::string text = blas::description();
    INFO(text);
    CHECK(text.find("OpenBLAS") == 0);
    if (const char* family = cpu_target().openblas) {
        if (!std::getenv("OPENBLAS_CORETYPE")) CHECK(text.find(family) != std::string::npos);
        CHECK(text.find("Prescott") == std::string::npos);
    }
}
