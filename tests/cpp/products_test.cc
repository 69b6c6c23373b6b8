// Every implementation of products that this machine can use, against a plain product in double;
// the choice between them.
#include <set>
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

namespace {

// While it exists, shapes have their own ways; others use these.
class ByShape {
public:
    explicit ByShape(Way f32, Way bf16) { products::choose({f32, bf16, "a test", 0, 0, true}); }
    ~ByShape() { products::choose(before_); }
    ByShape(const ByShape&) = delete;

private:
    const products::Choice before_ = products::choice();
};

// "" for a product that has no way of its own.
std::string shape(bool bf16, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k) {
    const auto widths = products::widths_of(bf16, trans_a, trans_b, m, n, k);
    return widths ? products::name_of(*widths) : "";
}

}  // namespace

TEST_CASE("products of one shape have the same way, whatever the number of tokens") {
    const ByShape by_shape(Way::openblas, Way::onednn);
    for (const int64_t tokens : {1, 17, 300, 5000}) {
        CHECK(shape(false, false, true, tokens, 768, 1536) == "f32-nt-768-1536");
        CHECK(shape(false, false, false, tokens, 768, 1536) == "f32-nn-768-1536");
        CHECK(shape(false, true, false, 768, 1536, tokens) == "f32-tn-768-1536");
        CHECK(shape(true, false, true, tokens, 128, 128) == "bf16-nt-128-128");
        CHECK(shape(true, false, true, tokens, 64, 128) == "");
        CHECK(shape(false, true, true, tokens, 768, 1536) == "");
    }
    products::choose({});
    CHECK(shape(false, false, true, 300, 768, 1536) == "");
}

TEST_CASE("sizes between which rates hardly differ are one") {
    const ByShape by_shape(Way::openblas, Way::onednn);
    const auto size = [](bool bf16, int64_t n) {
        const std::string name = shape(bf16, false, true, 300, n, 2048);
        return std::stoll(name.substr(name.find("nt-") + 3));
    };
    const int64_t f32[][2] = {{128, 128},   {203, 193},   {200, 200},   {2000, 1992},
                              {2001, 1985}, {2048, 2048}, {4096, 1024}, {11008, 1792}};
    for (const auto& [given, measured] : f32) CHECK(size(false, given) == measured);
    CHECK(size(true, 4096) == 2048);
    CHECK(size(true, 11008) == 2816);
    std::set<int64_t> sizes;
    for (int64_t n = 1; n < 100'000; ++n)
        if (products::widths_of(false, false, true, 300, n, 2048)) sizes.insert(size(false, n));
    CHECK(sizes.size() < 200);
}

TEST_CASE("the way of a shape is found once, or set by another rank") {
    const ByShape by_shape(Way::openblas, Way::openblas);
    const products::Widths widths{false, false, true, 336, 240};
    const Way way = products::fastest_way(widths);
    CHECK(products::why_unusable(way, false).empty());
    CHECK(products::known_way("f32-nt-336-240") == way);
    CHECK(products::kept_ways().at("f32-nt-336-240") == int(way));
    for (const Way set : {Way::onednn, Way::matmul}) {
        products::set_way("f32-nt-336-240", set);
        CHECK(products::fastest_way(widths) == set);
        CHECK(products::kept_ways().at("f32-nt-336-240") == int(way));
    }
    products::set_way("f32-nt-336-240", way);
    CHECK(!products::known_way("f32-nt-336-241"));
}

TEST_CASE("a product is computed by its own way, else by that of the machine") {
    Random random(15);
    Case c = plain_case(200, 300, 170, 2, 0, 1);
    const Values a = random.values(c.rows_a() * c.p.lda), b = random.values(c.rows_b() * c.p.ldb);
    const Values bias = random.values(c.p.n);
    const auto bits = [&](const Variant& v) {
        Tile a_tile = v.tile(a), b_tile = v.tile(b), bias_tile = v.tile(bias);
        Tile out = v.output(c.p.m * c.p.ldc);
        CHECK(run(v, "gemm", c.p, {&out, &a_tile, &b_tile, &bias_tile, nullptr}) == "");
        return out.bytes();
    };
    each_way([&](const Variant& v) {
        c.p.way = 0;
        const auto by_machine = bits(v);
        const products::Choice choice = products::choice();
        c.p.way = 1 + int32_t(v.dtype == Dtype::f32 ? choice.f32 : choice.bf16);
        products::choose({});
        CHECK(bits(v) == by_machine);
        products::choose(choice);
    });
}
