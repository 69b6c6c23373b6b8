// Gated linear units against their formulas in double, and the gradient against finite differences.
#include "tests/cpp/glu.h"

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const int64_t shapes[][2] = {{1, 1}, {3, 17}, {5, 64}, {4, 65}};

}  // namespace

TEST_CASE("glu multiplies the activation of the gate by the other half") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes)
            for (int32_t activation : {nn_glu_silu, nn_glu_gelu, nn_glu_gelu_exact}) {
                Tile x = v.tile(random.values(2 * rows * cols, -4, 4)), y = v.output(rows * cols);
                Values want;
                for (int64_t i = 0; i < rows; ++i)
                    for (int64_t j = 0; j < cols; ++j)
                        want.push_back(reference_gate(activation, x[2 * i * cols + j]) *
                                       x[(2 * i + 1) * cols + j]);
                run(v, "glu", nn_glu_params{rows, cols, activation, 0}, {&y, &x});
                check_close("y", y, want, v.eps() + 20 * v.sum_eps());
            }
    });
}

TEST_CASE("glu_backward multiplies by the slopes and sums the bias gradient over tiles") {
    Random random(2);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes)
            for (int32_t activation : {nn_glu_silu, nn_glu_gelu, nn_glu_gelu_exact}) {
                Tile dbias = v.sum_output(2 * cols);
                Values dbias_want(2 * cols);
                for (int first : {1, 0}) {
                    Tile x = v.tile(random.values(2 * rows * cols, -4, 4)),
                         dy = v.tile(random.values(rows * cols)), dx = v.output(2 * rows * cols),
                         alone = v.output(2 * rows * cols);
                    Values want(2 * rows * cols);
                    for (int64_t i = 0; i < rows; ++i)
                        for (int64_t j = 0; j < cols; ++j) {
                            const int64_t gate = 2 * i * cols + j, up = gate + cols;
                            const double d = dy[i * cols + j];
                            want[gate] = d * x[up] * reference_gate_slope(activation, x[gate]);
                            want[up] = d * reference_gate(activation, x[gate]);
                        }
                    for (int64_t i = 0; i < 2 * rows * cols; ++i)
                        dbias_want[i % (2 * cols)] += want[i];
                    const nn_glu_params p{rows, cols, activation, first};
                    run(v, "glu_backward", p, {&dx, &dbias, &dy, &x});
                    check_close("dx", dx, want, v.eps() + 20 * v.sum_eps() + 1e-9);
                    run(v, "glu_backward", p, {&alone, nullptr, &dy, &x});
                    check_close("dx without dbias", alone, dx.values(), 2 * v.eps());
                }
                check_close("dbias", dbias, dbias_want, 5 * v.eps() + 100 * v.sum_eps() + 1e-8);
            }
    });
}
