// Softmax, log-softmax and logsumexp with their gradients against plain double formulas.
#include "kernels/params/rows.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const int64_t shapes[][2] = {{1, 1}, {3, 1}, {1, 17}, {17, 3}, {5, 64}, {4, 65}, {2, 1000}};

Values softmax_of(const Values& x, int64_t n) {
    Values y(x.size());
    for (size_t start = 0; start < x.size(); start += n) {
        const double largest = *std::max_element(x.begin() + start, x.begin() + start + n);
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += y[start + j] = std::exp(x[start + j] - largest);
        for (int64_t j = 0; j < n; ++j) y[start + j] /= sum;
    }
    return y;
}

}  // namespace

TEST_CASE("softmax, log_softmax and logsumexp agree with their definitions") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes)
            for (double offset : {0.0, 90.0, -300.0}) {
                const nn_rows_params p{rows, cols};
                Tile x = v.tile(random.values(rows * cols, offset - 6, offset + 6));
                Tile y = v.output(rows * cols), log_y = v.output(rows * cols), lse = v.output(rows);
                run(v, "softmax", p, {&y, &x});
                run(v, "log_softmax", p, {&log_y, &x});
                run(v, "logsumexp", p, {&lse, &x});
                const Values want = softmax_of(x.values(), cols);
                Values log_want(want.size()), lse_want(rows);
                for (size_t i = 0; i < want.size(); ++i) log_want[i] = std::log(want[i]);
                for (int64_t i = 0; i < rows; ++i) lse_want[i] = x[i * cols] - log_want[i * cols];
                check_close("softmax", y, want, v.eps() + 20 * v.sum_eps(), 0.01);
                check_close("log_softmax", log_y, log_want, v.eps() + 20 * v.sum_eps());
                check_close("logsumexp", lse, lse_want, v.eps() + 20 * v.sum_eps());
            }
    });
}

TEST_CASE("softmax treats infinities and NaN as PyTorch does") {
    const double inf = INFINITY, none = NAN;
    each_variant([&](const Variant& v) {
        const nn_rows_params p{4, 3};
        Tile x = v.tile({-inf, 0, 0, -inf, -inf, -inf, inf, 0, 1, 0, none, 1});
        Tile y = v.output(12), log_y = v.output(12), lse = v.output(4);
        run(v, "softmax", p, {&y, &x});
        run(v, "log_softmax", p, {&log_y, &x});
        run(v, "logsumexp", p, {&lse, &x});
        const double half = std::log(0.5);
        check_close("softmax", y, {0, .5, .5, none, none, none, none, none, none, none, none, none},
                    2 * v.eps());
        check_close("log_softmax", log_y,
                    {-inf, half, half, none, none, none, none, none, none, none, none, none},
                    2 * v.eps());
        check_close("logsumexp", lse, {-half, -inf, inf, none}, 2 * v.eps());
    });
}

TEST_CASE("softmax, log_softmax and their gradients work in place") {
    Random random(2);
    each_variant([&](const Variant& v) {
        const nn_rows_params p{3, 37};
        for (const char* name : {"softmax", "log_softmax"}) {
            Tile x = v.tile(random.values(3 * 37)), y = v.output(3 * 37);
            run(v, name, p, {&y, &x});
            run(v, name, p, {&x, &x});
            check_close(name, x, y.values(), 0);
        }
        for (const char* name : {"softmax_backward", "log_softmax_backward"}) {
            Tile dy = v.tile(random.values(3 * 37)), y = v.tile(random.values(3 * 37)),
                 dx = v.output(3 * 37);
            run(v, name, p, {&dx, &dy, &y});
            run(v, name, p, {&dy, &dy, &y});
            check_close(name, dy, dx.values(), 0);
        }
    });
}

TEST_CASE("the gradients of softmax and log_softmax equal finite differences") {
    Random random(3);
    const Variant v{&cpu_target(), Dtype::f64};
    for (const auto& [rows, cols] : shapes) {
        const nn_rows_params p{rows, cols};
        Values x = random.values(rows * cols, -2, 2);
        const Values dy = random.values(rows * cols);
        for (const std::string name : {"softmax", "log_softmax"}) {
            Tile y = v.output(x.size()), dx = v.output(x.size()), dy_tile = v.tile(dy);
            const Values want = finite_difference(x, [&] {
                Tile x_tile = v.tile(x);
                run(v, name, p, {&y, &x_tile});
                return dot(y.values(), dy);
            });
            Tile x_tile = v.tile(x);
            run(v, name, p, {&y, &x_tile});
            run(v, name + "_backward", p, {&dx, &dy_tile, &y});
            check_close(name, dx, want, 1e-6);
        }
    }
}

TEST_CASE("the gradients of softmax and log_softmax agree with their formulas in every dtype") {
    Random random(4);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, cols] : shapes) {
            const nn_rows_params p{rows, cols};
            Tile dy = v.tile(random.values(rows * cols)),
                 x = v.tile(random.values(rows * cols, -3, 3));
            Tile y = v.output(rows * cols), log_y = v.output(rows * cols),
                 dx = v.output(rows * cols);
            run(v, "softmax", p, {&y, &x});
            run(v, "log_softmax", p, {&log_y, &x});
            Values want(rows * cols), log_want(rows * cols);
            for (int64_t i = 0; i < rows; ++i) {
                double weighted = 0, sum = 0;
                for (int64_t at = i * cols; at < (i + 1) * cols; ++at)
                    weighted += dy[at] * y[at], sum += dy[at];
                for (int64_t at = i * cols; at < (i + 1) * cols; ++at) {
                    want[at] = y[at] * (dy[at] - weighted);
                    log_want[at] = dy[at] - std::exp(log_y[at]) * sum;
                }
            }
            run(v, "softmax_backward", p, {&dx, &dy, &y});
            check_close("softmax_backward", dx, want, v.eps() + 50 * v.sum_eps(), 0.01);
            run(v, "log_softmax_backward", p, {&dx, &dy, &log_y});
            check_close("log_softmax_backward", dx, log_want, v.eps() + 50 * v.sum_eps());
        }
    });
}
