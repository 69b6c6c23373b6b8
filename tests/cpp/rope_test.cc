// Rotary position embedding against its formula in double, and its scaled frequencies against
// numbers of transformers.
#include "kernels/rope.h"

#include <array>

#include "kernels/math/angle.h"
#include "kernels/params/rope.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

nn_rope_params params(int64_t batch, int64_t len, int64_t heads, int64_t dim, int64_t rotated) {
    nn_rope_params p{};
    p.batch = batch, p.len = len, p.heads = heads, p.head_dim = dim, p.rotated = rotated;
    p.width = heads * dim + 3, p.base = 100, p.scale = p.factor = 1, p.low = 1, p.high = 4;
    p.start_dtype = int32_t(Dtype::i64);
    return p;
}

// x (batch, len, width) turned, from position start[b] on.
Values reference(const nn_rope_params& p, const Values& x, const Values& start) {
    Values y = x;
    for (int64_t row = 0; row < p.batch * p.len; ++row)
        for (int64_t h = 0; h < p.heads; ++h)
            for (int64_t i = 0, half = p.rotated / 2; i < half; ++i) {
                const size_t a = size_t(row * p.width + h * p.head_dim + i), b = a + size_t(half);
                const double position = start[size_t(row / p.len)] + double(row % p.len);
                const double angle =
                    position * std::pow(p.base, -2 * double(i) / double(p.rotated));
                const double c = p.scale * std::cos(angle),
                             s = p.scale * std::sin(p.inverse ? -angle : angle);
                y[a] = x[a] * c - x[b] * s;
                y[b] = x[b] * c + x[a] * s;
            }
    return y;
}

}  // namespace

TEST_CASE("rope turns pairs of components by the position times their frequency") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (const auto& [batch, len, heads, dim, rotated] : {std::array<int64_t, 5>{1, 1, 1, 2, 2},
                                                              {2, 3, 2, 8, 8},
                                                              {1, 5, 3, 7, 4},
                                                              {2, 2, 1, 64, 64},
                                                              {3, 1, 2, 34, 34}})
            for (int flags = 0; flags < 4; ++flags) {
                nn_rope_params p = params(batch, len, heads, dim, rotated);
                p.start = flags & 2 ? 40 : 0, p.inverse = flags & 2, p.scale = flags & 2 ? 1.5 : 1;
                Tile x = v.tile(random.values(size_t(batch * len * p.width)));
                Tile y = v.output(x.size()), start(Dtype::i64, random.integers(batch, 0, 90));
                Values from(size_t(batch), double(p.start));
                for (size_t b = 0; flags & 1 && b < from.size(); ++b) from[b] += start[b];
                CHECK(run(v, "rope", p, {&y, &x, flags & 1 ? &start : nullptr}) == "");
                // The angles of f32, up to 130, have errors of 4e-6.
                check_close("y", y, reference(p, x.values(), from), v.eps() + 2e2 * v.sum_eps());
            }
    });
}

TEST_CASE("scaled frequencies are those of transformers") {
    // transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS, see tests/golden/make_rope.py
    const auto check = [](nn_rope_params p, const Values& want) {
        Values got;
        for (size_t i = 0; i < want.size(); ++i)
            got.push_back(baseline::rope_frequency(p, int64_t(i)));
        check_close("frequencies", got, want, 1e-6, 0);
    };
    nn_rope_params p = params(1, 1, 1, 16, 16);
    p.base = 10000, p.factor = 8, p.original = 64;
    p.scaling = nn_rope_linear;
    check(p, {0.125, 0.0395284705, 0.0125000002, 0.00395284733, 0.00124999997, 0.000395284733,
              0.000125000006, 3.95284733e-05});
    p.scaling = nn_rope_llama3;
    check(p, {1, 0.244384587, 0.0130422562, 0.00395284733, 0.00124999997, 0.000395284733,
              0.000125000006, 3.95284733e-05});
    p.scaling = nn_rope_yarn, p.high = 32;
    check(p, {1, 0.223994657, 0.0416666642, 0.00395284733, 0.00124999997, 0.000395284733,
              0.000125000006, 3.95284733e-05});
}

TEST_CASE("sin_cos is accurate for large angles") {
    double worst = 0;
    for (int64_t i = 0; i < 200000; ++i) {
        const float x = float(double(i * i) * 1.37e-3);
        float s, c;
        baseline::math::sin_cos(x, &s, &c);
        worst = std::max(
            {worst, std::fabs(s - std::sin(double(x))), std::fabs(c - std::cos(double(x)))});
    }
    CHECK(worst < 2e-7);
}
