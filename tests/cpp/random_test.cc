// The random kernels: the generator against published vectors, the numbers against their
// definition, the moments of their distributions, and their independence of the tiling.
#include "kernels/params/random.h"

#include "kernels/philox.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

nn_random_params vector_params(int64_t n, double a, double b) {
    nn_random_params p{};
    p.seed = 0x123456789ABCDEF0, p.counter = 42;
    p.ndim = 1;
    p.extent[0] = p.whole[0] = n;
    p.a = a, p.b = b;
    return p;
}

Values numbers(const Variant& v, const std::string& name, const nn_random_params& p) {
    int64_t n = 1;
    for (int64_t d = 0; d < p.ndim; ++d) n *= p.extent[d];
    Tile y = v.output(size_t(n)), x = v.tile(Values(size_t(n), 1));
    std::vector<Tile*> operands = {&y};
    if (name == "dropout") operands.push_back(&x);
    CHECK(run(v, name, p, operands) == "");
    return y.values();
}

// The k-th moment about `center`.
double moment(const Values& x, int k, double center) {
    double sum = 0;
    for (double value : x) sum += std::pow(value - center, k);
    return sum / double(x.size());
}

TEST_CASE("Philox4x32-10 gives the vectors published with Random123") {
    const auto words = [](uint64_t seed, uint64_t counter, uint64_t index) {
        const Philox4 block = philox(seed, counter, index);
        return std::vector<uint32_t>(block.word, block.word + 4);
    };
    CHECK(words(0, 0, 0) == std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(words(~0ull, ~0ull, ~0ull) ==
          std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    // counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0, lowest word first
    CHECK(words(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
          std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("element e takes word e mod 4 of Philox block e / 4") {
    each_variant([](const Variant& v) {
        const nn_random_params p = vector_params(2001, -1, 3);
        Values uniform, normal, kept;
        for (int64_t e = 0; e < 2001; ++e) {
            const Philox4 block = philox(p.seed, p.counter, uint64_t(e / 4));
            const auto unit = [&](int64_t k) { return double(block.word[k] >> 8) / 16777216; };
            const int64_t pair = e % 4 / 2 * 2;
            const double radius = std::sqrt(-2 * std::log(unit(pair) + 1 / 16777216.0));
            const double angle = 2 * 3.14159265358979323846 * unit(pair + 1);
            uniform.push_back(-1 + 4 * unit(e % 4));
            normal.push_back(-1 + 3 * radius * (e % 2 ? std::sin(angle) : std::cos(angle)));
            kept.push_back(unit(e % 4) >= 0.25 ? 1 / 0.75 : 0);
        }
        check_close("uniform", numbers(v, "random_uniform", p), uniform, 2 * v.eps());
        check_close("normal", numbers(v, "random_normal", p), normal,
                    v.dtype == Dtype::f32 ? 2e-6 : 2 * v.eps());
        check_close("dropout", numbers(v, "dropout", vector_params(2001, 0.25, 0)), kept,
                    2 * v.eps());
    });
}

TEST_CASE("random numbers do not depend on the tiling") {
    each_variant([](const Variant& v) {
        Random random(1);
        for (const char* name : {"random_uniform", "random_normal", "dropout"})
            for (int trial = 0; trial < 12; ++trial) {
                nn_random_params p = vector_params(1, name == std::string("dropout") ? 0.3 : 0, 1);
                p.ndim = random.integer(1, 4);
                int64_t total = 1;
                for (int64_t d = 0; d < p.ndim; ++d) {
                    p.whole[d] = p.extent[d] = random.integer(1, p.ndim == 1 ? 9000 : 13);
                    total *= p.whole[d];
                }
                const Values whole = numbers(v, name, p);
                REQUIRE(int64_t(whole.size()) == total);
                for (int64_t d = 0; d < p.ndim; ++d) {
                    p.start[d] = random.integer(0, p.whole[d] - 1);
                    p.extent[d] = random.integer(1, p.whole[d] - p.start[d]);
                }
                const Values tile = numbers(v, name, p);
                Values want;
                for (int64_t i = 0; i < int64_t(tile.size()); ++i) {
                    int64_t rest = i, at = 0, stride = 1;
                    for (int64_t d = p.ndim - 1; d >= 0;
                         stride *= p.whole[d], rest /= p.extent[d--])
                        at += (p.start[d] + rest % p.extent[d]) * stride;
                    want.push_back(whole[size_t(at)]);
                }
                INFO(name << ", trial " << trial);
                check_close("tile", tile, want, 0);
            }
    });
}

TEST_CASE("random numbers have the moments of their distributions") {
    // Four standard errors at n = 200000: 0.009 deviations for a mean, 0.013 for a variance, 0.09
    // for a fourth moment.
    const int64_t n = 200000;
    each_variant(
        [&](const Variant& v) {
            const Values normal = numbers(v, "random_normal", vector_params(n, 0.5, 2));
            CHECK(moment(normal, 1, 0) == Approx(0.5).margin(0.018));
            CHECK(moment(normal, 2, 0.5) == Approx(4).margin(0.05));
            CHECK(moment(normal, 3, 0.5) / 8 == Approx(0).margin(0.035));
            CHECK(moment(normal, 4, 0.5) / 16 == Approx(3).margin(0.09));
            const Values uniform = numbers(v, "random_uniform", vector_params(n, 2, 6));
            CHECK(moment(uniform, 1, 0) == Approx(4).margin(0.011));
            CHECK(moment(uniform, 2, 4) == Approx(16.0 / 12).margin(0.012));
            CHECK(*std::min_element(uniform.begin(), uniform.end()) >= 2);
            CHECK(*std::max_element(uniform.begin(), uniform.end()) <= 6);
        },
        {Dtype::f32, Dtype::f64});
}

TEST_CASE("neighbours, seeds and counters give uncorrelated numbers") {
    const Variant v{&cpu_target(), Dtype::f32};
    const int64_t n = 100000;
    nn_random_params p = vector_params(n, 0, 1);
    const Values x = numbers(v, "random_normal", p);
    p.counter += 1;
    const Values other_counter = numbers(v, "random_normal", p);
    p.counter -= 1, p.seed += 1;
    const Values other_seed = numbers(v, "random_normal", p);
    const double limit = 4 / std::sqrt(double(n));
    CHECK(std::fabs(dot(x, other_counter) / double(n)) < limit);
    CHECK(std::fabs(dot(x, other_seed) / double(n)) < limit);
    for (size_t lag : {1, 2, 3, 4, 64}) {
        double sum = 0;
        for (size_t i = lag; i < x.size(); ++i) sum += x[i] * x[i - lag];
        CHECK(std::fabs(sum / double(n)) < limit);
    }
}

TEST_CASE("dropout drops its share and scales the rest") {
    each_variant([](const Variant& v) {
        const int64_t n = 100000;
        for (double drop : {0.0, 0.1, 0.5, 1.0}) {
            const Values y = numbers(v, "dropout", vector_params(n, drop, 0));
            const double share = double(std::count(y.begin(), y.end(), 0.0)) / double(n);
            CHECK(share == Approx(drop).margin(4 * std::sqrt(drop * (1 - drop) / double(n))));
            for (double value : {y.front(), y[17], y.back()})
                if (value != 0) CHECK(value == Approx(1 / (1 - drop)).epsilon(2 * v.eps()));
        }
    });
}

}  // namespace
