// The optimizers of kernels/math/updates.h against their rules in double, over several steps.
#include <functional>

#include "kernels/params/optimizer.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

// The new value of a parameter w by its gradient; changes the states.
using Rule = std::function<double(double w, double g, double* states)>;

// Four steps of a kernel by a rule. present: which states it has; they start as 1, 0, 0.
template <class P>
void check_update(const Variant& v, const char* kernel, P p, const std::vector<bool>& present,
                  const Rule& rule, const std::function<void(P&, int)>& each_step = {}) {
    Random random(4);
    for (size_t n : {1, 3, 17, 64, 65, 1000})
        for (Dtype grad_dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
            INFO(kernel << " of " << n);
            const bool has_master = v.dtype == Dtype::bf16 && n % 2;
            p.update.n = int64_t(n), p.update.grad_dtype = int32_t(grad_dtype);
            Tile param = v.tile(random.values(n)), master(Dtype::f32, param.values());
            std::vector<Tile> states;
            for (size_t k = 0; k < present.size(); ++k)
                states.push_back(v.sums(Values(n, k == 0 ? 1 : 0)));
            Values want = param.values(), want_states(3 * n);
            for (size_t i = 0; i < n; ++i) want_states[3 * i] = 1;
            for (int step = 1; step <= 4; ++step) {
                p.update.clip = step == 2 ? 0.25 : 0;
                if (each_step) each_step(p, step);
                Tile grad(grad_dtype, random.values(n)), norm(Dtype::f64, {2.5});
                std::vector<Tile*> operands = {&param, has_master ? &master : nullptr, &grad,
                                               step == 2 ? &norm : nullptr};
                for (size_t k = 0; k < present.size(); ++k)
                    operands.push_back(present[k] ? &states[k] : nullptr);
                CHECK(run(v, kernel, p, operands) == "");
                const double clip = step == 2 ? 0.25 / (2.5 + 1e-6) : 1;
                for (size_t i = 0; i < n; ++i)
                    want[i] = rule(want[i], grad[i] * clip, &want_states[3 * i]);
                check_close("param", param, want, v.eps() + 20 * v.sum_eps());
                if (has_master) check_close("master", master, want, 20 * v.sum_eps());
                for (size_t k = 0; k < present.size(); ++k) {
                    Values of_state;
                    for (size_t i = 0; i < n; ++i) of_state.push_back(want_states[3 * i + k]);
                    if (present[k]) check_close("state", states[k], of_state, 20 * v.sum_eps());
                }
                if (!has_master) want = param.values();  // bf16 has rounded
            }
        }
}

const nn_update_params shared = {0, 0.01, 0.1, 0, 1, 0};

}  // namespace

TEST_CASE("lion follows its paper, with clipping, a master and any gradient dtype") {
    const nn_lion_params p = {shared, 0.9, 0.99};
    each_variant([&](const Variant& v) {
        check_update<nn_lion_params>(v, "lion", p, {true}, [&](double w, double g, double* s) {
            const double direction = 0.9 * s[0] + (1 - 0.9) * g;
            s[0] = 0.99 * s[0] + (1 - 0.99) * g;
            return w - 0.01 * ((direction > 0) - (direction < 0) + 0.1 * w);
        });
    });
}

TEST_CASE("rmsprop follows PyTorch, centered or not, with and without momentum") {
    each_variant([&](const Variant& v) {
        for (const bool centered : {false, true})
            for (const bool has_momentum : {false, true}) {
                const nn_rmsprop_params p = {shared, 0.9, 1e-3, has_momentum ? 0.5 : 0};
                check_update<nn_rmsprop_params>(
                    v, "rmsprop", p, {true, centered, has_momentum},
                    [&](double w, double g, double* s) {
                        g += 0.1 * w;
                        s[0] = 0.9 * s[0] + (1 - 0.9) * g * g;
                        s[1] = 0.9 * s[1] + (1 - 0.9) * g;
                        const double variance = s[0] - (centered ? s[1] * s[1] : 0);
                        s[2] = (has_momentum ? 0.5 * s[2] : 0) + g / (std::sqrt(variance) + 1e-3);
                        return w - 0.01 * s[2];
                    });
            }
    });
}

TEST_CASE("adagrad follows PyTorch, with a decay of the learning rate") {
    double step = 1;
    each_variant([&](const Variant& v) {
        check_update<nn_adagrad_params>(
            v, "adagrad", {shared, 1, 0.5, 1e-3}, {true},
            [&](double w, double g, double* s) {
                g += 0.1 * w;
                s[0] += g * g;
                return w - 0.01 / (1 + (step - 1) * 0.5) * g / (std::sqrt(s[0]) + 1e-3);
            },
            [&](nn_adagrad_params& p, int now) { p.step = step = now; });
    });
}

TEST_CASE("lion, rmsprop and adagrad change nothing if the norm is not finite, or pass on NaN") {
    each_variant([&](const Variant& v) {
        for (const bool skips : {true, false}) {
            nn_update_params update = shared;
            update.n = 3, update.skip_nonfinite = skips, update.grad_dtype = int32_t(v.dtype);
            const auto check = [&](const char* kernel, auto p, size_t states) {
                Tile param = v.tile({1, 2, 3}), state = v.sums({1, 1, 1});
                Tile grad = v.tile({NAN, 1, 1}), norm(Dtype::f64, {NAN});
                std::vector<Tile*> operands = {&param, nullptr, &grad, &norm, &state};
                operands.resize(4 + states);
                run(v, kernel, p, operands);
                CHECK(std::isnan(param[0]) == !skips);
                if (!skips) return;
                check_close("param", param, {1, 2, 3}, 0);
                check_close("state", state, {1, 1, 1}, 0);
            };
            check("lion", nn_lion_params{update, 0.9, 0.99}, 1);
            check("rmsprop", nn_rmsprop_params{update, 0.9, 1e-8, 0}, 3);
            check("adagrad", nn_adagrad_params{update, 1, 0, 1e-10}, 1);
        }
    });
}
