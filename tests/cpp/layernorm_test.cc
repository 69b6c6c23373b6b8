// LayerNorm and RMSNorm with the residual sum, forward and backward, against formulas in double and
// finite differences.
#include "kernels/params/layernorm.h"

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const int64_t shapes[][2] = {{1, 2},   {3, 17},  {17, 3},   {5, 64},  {4, 65},
                             {2, 768}, {800, 8}, {2, 3000}, {1, 6000}};
constexpr double epsilon = 1e-5;

struct Normalised {
    Values y, stats;
};
Normalised reference(const Values& s, const Values& weight, const Values& bias, int64_t rows,
                     int64_t cols, bool rms = false) {
    Normalised out{Values(rows * cols), {}};
    for (int64_t i = 0; i < rows; ++i) {
        const double* row = s.data() + i * cols;
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < cols && !rms; ++j) mean += row[j] / double(cols);
        for (int64_t j = 0; j < cols; ++j)
            variance += (row[j] - mean) * (row[j] - mean) / double(cols);
        const double rstd = 1 / std::sqrt(variance + epsilon);
        for (int64_t j = 0; j < cols; ++j)
            out.y[i * cols + j] = (row[j] - mean) * rstd * weight[j] + (bias.empty() ? 0 : bias[j]);
        out.stats.insert(out.stats.end(), {mean, rstd});
    }
    return out;
}

}  // namespace

TEST_CASE("layernorm normalises rows of x or of the residual sum") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes)
            for (int flags : {0, 1, 2, 3, 4, 5}) {
                const bool residual = flags & 1, has_bias = flags & 2, rms = flags & 4;
                INFO("rows " << rows << " cols " << cols << " residual " << residual << " bias "
                             << has_bias << " rms " << rms);
                const size_t n = rows * cols;
                Tile x = v.tile(random.values(n)), r = v.tile(random.values(n, -0.3, 0.3)),
                     s = v.output(n);
                Tile weight = v.tile(random.values(cols)), bias = v.tile(random.values(cols));
                Tile y = v.output(n), stats = v.sum_output(2 * rows);
                const nn_layernorm_params p{rows, cols, epsilon, 1, rms};
                run(v, "layernorm", p,
                    {&y, residual ? &s : nullptr, &stats, &x, residual ? &r : nullptr, &weight,
                     has_bias ? &bias : nullptr});
                if (residual) {
                    Values sum = x.values();
                    for (size_t i = 0; i < n; ++i) sum[i] += r[i];
                    check_close("s", s, sum, v.eps());
                }
                const Values input = residual ? s.values() : x.values();
                const Normalised want = reference(
                    input, weight.values(), has_bias ? bias.values() : Values(), rows, cols, rms);
                double rstd = 1;  // large if two columns are nearly equal
                for (size_t i = 1; i < want.stats.size(); i += 2)
                    rstd = std::max(rstd, want.stats[i]);
                check_close("y", y, want.y, v.eps() + 20 * v.sum_eps() * rstd);
                check_close("stats", stats, want.stats, (20 + 0.01 * double(cols)) * v.sum_eps());
            }
    });
}

TEST_CASE("layernorm is precise when the mean is large compared with the deviation") {
    const Variant v{&cpu_target(), Dtype::f32};
    Random random(2);
    Tile x = v.tile(random.values(256, 999, 1001)), weight = v.tile(Values(256, 1)),
         y = v.output(256);
    Tile stats = v.sum_output(2);
    run(v, "layernorm", nn_layernorm_params{1, 256, epsilon, 1, 0},
        {&y, nullptr, &stats, &x, nullptr, &weight, nullptr});
    // The mean has an error of 6e-5, the rounding of 1000; with the deviation 0.58 y has 1e-4.
    check_close("y", y, reference(x.values(), Values(256, 1), {}, 1, 256).y, 4e-4);
}

TEST_CASE(
    "layernorm_backward agrees with its formula, over tiles, with and without the residual's "
    "gradient",
    "[sweep]") {
    Random random(3);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes)
            for (int flags : {0, 1, 2, 3, 4, 5}) {
                if (rows * cols > 5000 && flags % 3 != 0) continue;
                const bool has_ds = flags & 1, has_bias = flags & 2, rms = flags & 4;
                const size_t n = rows * cols;
                Tile weight = v.tile(random.values(cols)), dweight = v.sum_output(cols),
                     dbias = v.sum_output(cols);
                Values dweight_want(cols), dbias_want(cols);
                for (int first : {1, 0}) {
                    Tile dy = v.tile(random.values(n)), s = v.tile(random.values(n)),
                         ds = v.tile(random.values(n));
                    Tile stats =
                        v.sums(reference(s.values(), weight.values(), {}, rows, cols, rms).stats);
                    Tile dx = v.output(n);
                    Values want(n);
                    for (int64_t i = 0; i < rows; ++i) {
                        double mean_g = 0, mean_gh = 0;
                        const auto h = [&](int64_t at) {
                            return (s[at] - stats[2 * i]) * stats[2 * i + 1];
                        };
                        for (int64_t j = 0, at = i * cols; j < cols; ++j, ++at) {
                            mean_g += rms ? 0 : dy[at] * weight[j] / double(cols);
                            mean_gh += dy[at] * weight[j] * h(at) / double(cols);
                            dweight_want[j] += dy[at] * h(at);
                            dbias_want[j] += dy[at];
                        }
                        for (int64_t j = 0, at = i * cols; j < cols; ++j, ++at)
                            want[at] =
                                stats[2 * i + 1] * (dy[at] * weight[j] - mean_g - h(at) * mean_gh) +
                                (has_ds ? ds[at] : 0);
                    }
                    run(v, "layernorm_backward",
                        nn_layernorm_params{rows, cols, epsilon, first, rms},
                        {&dx, &dweight, has_bias ? &dbias : nullptr, &dy, &s, &stats, &weight,
                         has_ds ? &ds : nullptr});
                    // 1/deviation may be large with two columns
                    check_close("dx", dx, want, v.eps() + 50 * v.sum_eps(),
                                1 + *std::max_element(want.begin(), want.end()));
                }
                const double tolerance = (50 + 0.5 * double(rows)) * v.sum_eps();
                check_close("dweight", dweight, dweight_want, tolerance);
                if (has_bias) check_close("dbias", dbias, dbias_want, tolerance);
            }
    });
}

TEST_CASE("the gradients of layernorm equal finite differences") {
    Random random(4);
    const Variant v{&cpu_target(), Dtype::f64};
    const int64_t rows = 3, cols = 7;
    const nn_layernorm_params p{rows, cols, epsilon, 1, 0};
    Values x = random.values(rows * cols), weight = random.values(cols), bias = random.values(cols);
    const Values dy = random.values(rows * cols);
    Tile y = v.output(rows * cols), stats = v.output(2 * rows);
    const auto forward = [&] {
        Tile x_tile = v.tile(x), w_tile = v.tile(weight), b_tile = v.tile(bias);
        run(v, "layernorm", p, {&y, nullptr, &stats, &x_tile, nullptr, &w_tile, &b_tile});
        return dot(y.values(), dy);
    };
    const Values dx = finite_difference(x, forward), dweight = finite_difference(weight, forward);
    const Values dbias = finite_difference(bias, forward);
    forward();
    Tile dx_tile = v.output(rows * cols), dw_tile = v.output(cols), db_tile = v.output(cols);
    Tile dy_tile = v.tile(dy), x_tile = v.tile(x), w_tile = v.tile(weight);
    run(v, "layernorm_backward", p,
        {&dx_tile, &dw_tile, &db_tile, &dy_tile, &x_tile, &stats, &w_tile, nullptr});
    check_close("dx", dx_tile, dx, 1e-8);
    check_close("dweight", dw_tile, dweight, 1e-8);
    check_close("dbias", db_tile, dbias, 1e-8);
}
