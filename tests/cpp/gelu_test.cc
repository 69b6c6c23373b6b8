// The gradient of GELU with its bias sum, and column sums, against plain double formulas and finite
// differences.
#include "tests/cpp/gelu.h"

#include "kernels/params/gelu.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const int64_t shapes[][2] = {{1, 1}, {3, 1}, {1, 17}, {17, 3}, {5, 64}, {4, 65}, {2, 1000}};

}  // namespace

TEST_CASE(
    "gelu_bias_backward multiplies by the slope of GELU and sums the bias gradient over tiles") {
    Random random(5);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes) {
            Tile dbias = v.sum_output(cols);
            Values dbias_want(cols);
            for (int first : {1, 0}) {
                const nn_gelu_bias_backward_params p{rows, cols, first};
                Tile dy = v.tile(random.values(rows * cols)),
                     pre = v.tile(random.values(rows * cols, -6, 6));
                Tile dpre = v.output(rows * cols), alone = v.output(rows * cols);
                Values want(rows * cols);
                for (int64_t i = 0; i < rows * cols; ++i) {
                    want[i] = dy[i] * reference_gelu_slope(pre[i]);
                    dbias_want[i % cols] += want[i];
                }
                run(v, "gelu_bias_backward", p, {&dpre, &dbias, &dy, &pre});
                check_close("dpre", dpre, want, v.eps() + 10 * v.sum_eps(), 0.1);
                run(v, "gelu_bias_backward", p, {&alone, nullptr, &dy, &pre});
                check_close("dpre without dbias", alone, dpre.values(), 2 * v.eps());
                run(v, "gelu_bias_backward", p, {&dy, nullptr, &dy, &pre});
                check_close("dpre in place of dy", dy, alone.values(), 0);
            }
            check_close("dbias", dbias, dbias_want, 40 * v.sum_eps());
        }
    });
}

TEST_CASE("GELU's slope equals finite differences and does not overflow") {
    const Variant v{&cpu_target(), Dtype::f64};
    Values x;
    for (double at = -8; at <= 8; at += 0.25) x.push_back(at);
    const nn_gelu_bias_backward_params p{1, int64_t(x.size()), 1};
    Tile dy = v.tile(Values(x.size(), 1)), pre = v.tile(x), dpre = v.output(x.size());
    run(v, "gelu_bias_backward", p, {&dpre, nullptr, &dy, &pre});
    Values want;
    for (double at : x)
        want.push_back((reference_gelu(at + 1e-5) - reference_gelu(at - 1e-5)) / 2e-5);
    check_close("slope", dpre, want, 1e-9);

    each_variant([&](const Variant& far) {
        const nn_gelu_bias_backward_params four{1, 4, 1};
        Tile ones = far.tile({1, 1, 1, 1}), ends = far.tile({-1e4, -40, 40, 1e4}),
             slope = far.output(4);
        run(far, "gelu_bias_backward", four, {&slope, nullptr, &ones, &ends});
        check_close("slope", slope, {0, 0, 1, 1}, 0);
    });
}

TEST_CASE("column_sum adds up rows and tiles") {
    Random random(6);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes) {
            Tile y = v.sum_output(cols);
            Values want(cols);
            for (int first : {1, 0}) {
                Tile x = v.tile(random.values(rows * cols));
                for (int64_t i = 0; i < rows * cols; ++i) want[i % cols] += x[i];
                run(v, "column_sum", nn_column_sum_params{rows, cols, first}, {&y, &x});
            }
            check_close("y", y, want, 20 * v.sum_eps());
        }
    });
}
