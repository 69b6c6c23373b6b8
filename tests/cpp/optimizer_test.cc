// AdamW, Adam and SGD against PyTorch's update rules in double, over several steps; sums of
// squares.
#include "kernels/params/optimizer.h"

#include "kernels/params/random.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const size_t sizes[] = {1, 3, 17, 64, 65, 1000};

// torch.optim.AdamW and Adam (single tensor), with clip_grad_norm_'s factor.
struct ReferenceAdamW {
    Values param, m, v;
    void step(const nn_adamw_params& p, const Values& grad, double clip) {
        for (size_t i = 0; i < param.size(); ++i) {
            const double decay = p.weight_decay * param[i];
            const double g = grad[i] * clip + (p.coupled ? decay : 0);
            if (!p.coupled) param[i] -= p.lr * decay;
            m[i] += (1 - p.beta1) * (g - m[i]);
            v[i] = p.beta2 * v[i] + (1 - p.beta2) * g * g;
            const double correction1 = 1 - std::pow(p.beta1, p.step),
                         correction2 = 1 - std::pow(p.beta2, p.step);
            param[i] -=
                p.lr / correction1 * m[i] / (std::sqrt(v[i]) / std::sqrt(correction2) + p.eps);
        }
    }
};

nn_adamw_params adamw_params(size_t n, Dtype grad) {
    return {int64_t(n), 0.01, 0.9, 0.95, 1e-8, 0.1, 1, 0, 1, int32_t(grad), 0, 0, {}};
}
double clip_factor(double clip, double norm) { return std::min(1.0, clip / (norm + 1e-6)); }

}  // namespace

TEST_CASE(
    "adamw and adam follow PyTorch over several steps, with clipping and any gradient dtype") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (size_t n : sizes)
            for (Dtype grad_dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
                nn_adamw_params p = adamw_params(n, grad_dtype);
                p.coupled = n % 2;
                Tile param = v.tile(random.values(n)), m = v.sums(Values(n)),
                     second = v.sums(Values(n));
                ReferenceAdamW want{param.values(), Values(n), Values(n)};
                for (p.step = 1; p.step <= 4; ++p.step) {
                    p.clip = p.step == 1 ? 0 : p.step == 2 ? 100 : 0.25;
                    Tile grad(grad_dtype, random.values(n)), norm(Dtype::f64, {2.5});
                    CHECK(run(v, "adamw", p,
                              {&param, &m, &second, &grad, p.step == 1 ? nullptr : &norm,
                               nullptr}) == "");
                    want.step(p, grad.values(), p.clip > 0 ? clip_factor(p.clip, 2.5) : 1);
                    check_close("param", param, want.param, v.eps() + 10 * v.sum_eps());
                    check_close("m", m, want.m, 10 * v.sum_eps());
                    check_close("v", second, want.v, 10 * v.sum_eps());
                    want.param = param.values();  // bf16 has rounded
                }
            }
    });
}

TEST_CASE("adamw with a float32 master moves a bf16 parameter by steps smaller than its rounding") {
    for (const Target* target : usable_targets(Device::cpu)) {
        const Variant v{target, Dtype::bf16};
        const size_t n = 65;
        nn_adamw_params p = adamw_params(n, Dtype::bf16);
        p.lr = 1e-4;
        Tile param = v.tile(Values(n, 1)), master(Dtype::f32, Values(n, 1)),
             grad = v.tile(Values(n, 0.5));
        Tile m = v.sums(Values(n)), second = v.sums(Values(n));
        ReferenceAdamW want{Values(n, 1), Values(n), Values(n)};
        for (p.step = 1; p.step <= 100; ++p.step) {
            run(v, "adamw", p, {&param, &m, &second, &grad, nullptr, &master});
            want.step(p, grad.values(), 1);
        }
        check_close("master", master, want.param, 1e-5);
        check_close("param", param, want.param, v.eps());
        CHECK(param[0] == Tile(Dtype::bf16, {master[0]})[0]);
    }
}

namespace {

// The random numbers of the block of (rows, cols) at (row, col) of a (wide, wide) tensor.
nn_random_params noise_of(int64_t row, int64_t col, int64_t rows, int64_t cols, int64_t wide) {
    return {7, 3, 2, {rows, cols}, {row, col}, {wide, wide}, 0, 0};
}

// Multiplies a bf16 parameter by a factor, with stochastic rounding: no gradient, no moments.
Values decayed(const Variant& v, const Values& values, double decay,
               const nn_random_params& noise) {
    const size_t n = values.size();
    nn_adamw_params p = adamw_params(n, Dtype::f32);
    p.lr = 1, p.weight_decay = 1 - decay;
    p.stochastic = 1, p.noise = noise;
    Tile param = v.tile(values), m = v.sums(Values(n)), second = v.sums(Values(n));
    Tile grad(Dtype::f32, Values(n));
    CHECK(run(v, "adamw", p, {&param, &m, &second, &grad, nullptr, nullptr}) == "");
    return param.values();
}

}  // namespace

TEST_CASE("stochastic rounding gives one of the neighbours, and is exact on average") {
    constexpr int64_t side = 300;
    constexpr size_t n = side * side;
    const double below = 0.99609375, above = 1, exact = double(float(0.999));
    each_variant(
        [&](const Variant& v) {
            double sum = 0;
            for (double x : decayed(v, Values(n, 1), 0.999, noise_of(0, 0, side, side, side))) {
                REQUIRE((x == below || x == above));
                sum += x;
            }
            const double up = (exact - below) / (above - below);
            const double deviation = (above - below) * std::sqrt(up * (1 - up) / double(n));
            CHECK(std::fabs(sum / double(n) - exact) < 4 * deviation);
        },
        {Dtype::bf16});
}

TEST_CASE("stochastic rounding does not depend on the tiling") {
    constexpr int64_t wide = 23, cut = 9;
    Random random(5);
    const Values values = random.values(size_t(wide * wide));
    each_variant(
        [&](const Variant& v) {
            const Values whole = decayed(v, values, 0.997, noise_of(0, 0, wide, wide, wide));
            for (int64_t row : {int64_t(0), cut})
                for (int64_t col : {int64_t(0), cut}) {
                    const int64_t rows = row ? wide - cut : cut, cols = col ? wide - cut : cut;
                    Values tile, want;
                    for (int64_t i = 0; i < rows; ++i)
                        for (int64_t j = 0; j < cols; ++j) {
                            const size_t at = size_t((row + i) * wide + col + j);
                            tile.push_back(values[at]);
                            want.push_back(whole[at]);
                        }
                    CHECK(decayed(v, tile, 0.997, noise_of(row, col, rows, cols, wide)) == want);
                }
        },
        {Dtype::bf16});
}

TEST_CASE("stochastic rounding keeps infinities, NaN and exact values") {
    const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
    const Values values = {inf, -inf, nan, 0, 1.5, -3.390625};
    each_variant(
        [&](const Variant& v) {
            check_close("param", decayed(v, values, 1, noise_of(0, 0, 2, 3, 3)), values, 0);
        },
        {Dtype::bf16});
}

TEST_CASE("a non-finite gradient norm gives NaN, or changes nothing with skip_nonfinite") {
    each_variant([&](const Variant& v) {
        for (double norm_value : {double(INFINITY), double(NAN)}) {
            nn_adamw_params p = adamw_params(3, v.dtype);
            p.clip = 1;
            nn_sgd_params q{3, 0.1, 0.9, 0, 1, 0, 1, 1, int32_t(v.dtype)};
            Tile param = v.tile({1, 2, 3}), m = v.sums({1, 1, 1}), second = v.sums({2, 2, 2});
            Tile grad = v.tile({NAN, 1, 1}), norm(Dtype::f64, {norm_value});
            run(v, "adamw", p, {&param, &m, &second, &grad, &norm, nullptr});
            run(v, "sgd", q, {&param, &m, &grad, &norm});
            check_close("param", param, {1, 2, 3}, 0);
            check_close("m", m, {1, 1, 1}, 0);
            check_close("v", second, {2, 2, 2}, 0);
            p.skip_nonfinite = 0;
            run(v, "adamw", p, {&param, &m, &second, &grad, &norm, nullptr});
            CHECK(std::isnan(param[0]));
        }
    });
}

TEST_CASE("sgd follows PyTorch: momentum, Nesterov, weight decay, clipping") {
    Random random(2);
    each_variant([&](const Variant& v) {
        for (size_t n : sizes)
            for (int flags = 0; flags < 8; ++flags) {
                const bool has_momentum = flags & 1, nesterov = flags & 2, clipped = flags & 4;
                Tile param = v.tile(random.values(n)), buffer = v.sum_output(n);
                Values want = param.values(), want_buffer(n);
                for (int step = 0; step < 3; ++step) {
                    const nn_sgd_params p{int64_t(n),          0.1,      0.9,       0.01,
                                          clipped ? 0.5 : 0.0, nesterov, step == 0, 0,
                                          int32_t(v.dtype)};
                    Tile grad = v.tile(random.values(n)), norm(Dtype::f64, {2.0});
                    run(v, "sgd", p,
                        {&param, has_momentum ? &buffer : nullptr, &grad,
                         clipped ? &norm : nullptr});
                    for (size_t i = 0; i < n; ++i) {
                        double g = grad[i] * (clipped ? clip_factor(0.5, 2.0) : 1) + 0.01 * want[i];
                        if (has_momentum) {
                            want_buffer[i] = step == 0 ? g : 0.9 * want_buffer[i] + g;
                            g = nesterov ? g + 0.9 * want_buffer[i] : want_buffer[i];
                        }
                        want[i] -= 0.1 * g;
                    }
                    check_close("param", param, want, v.eps() + 10 * v.sum_eps());
                    if (has_momentum)
                        check_close("momentum", buffer, want_buffer, 10 * v.sum_eps());
                    want = param.values();
                }
            }
    });
}

TEST_CASE("sumsq adds squares over tiles and does not overflow or lose small terms") {
    Random random(3);
    each_variant([&](const Variant& v) {
        for (size_t n : {size_t(1), size_t(17), size_t(4096), size_t(10001)}) {
            Tile acc = Tile::poisoned(Dtype::f64, 1);
            double want = 0;
            for (int first : {1, 0}) {
                Tile x = v.tile(random.values(n));
                for (size_t i = 0; i < n; ++i) want += x[i] * x[i];
                run(v, "sumsq", nn_sumsq_params{int64_t(n), first}, {&acc, &x});
            }
            check_close("acc", acc, {want}, 1e-12);
        }
        Tile acc = Tile::poisoned(Dtype::f64, 1), x = v.tile({1e25, 1e25});
        run(v, "sumsq", nn_sumsq_params{2, 1}, {&acc, &x});
        CHECK(acc[0] == Approx(2 * x[0] * x[0]));
    });
}

TEST_CASE("sumsq of 2^24 equal floats is exact to 1e-12") {
    const Variant v{&cpu_target(), Dtype::f32};
    const size_t n = size_t(1) << 24;
    Tile acc = Tile::poisoned(Dtype::f64, 1), x = v.tile(Values(n, 0.1));
    run(v, "sumsq", nn_sumsq_params{int64_t(n), 1}, {&acc, &x});
    CHECK(acc[0] == Approx(double(n) * x[0] * x[0]).epsilon(1e-12));
}

namespace {

// Runs calls of a kernel at once, as the engine does for those that write different tiles.
template <class P>
std::string run_many(const Variant& v, const std::string& name, const std::vector<P>& params,
                     const std::vector<std::vector<Tile*>>& operands) {
    std::vector<Tile*> all;
    for (const auto& of_call : operands) all.insert(all.end(), of_call.begin(), of_call.end());
    const Mirror mirror(*v.cuda, all, v.displaced);
    std::string error;
    std::vector<KernelCall> calls;
    for (size_t i = 0; i < params.size(); ++i)
        calls.push_back({mirror.operands() + i * operands[0].size(), &params[i], v.dtype, nullptr,
                         &error, &v.cuda->gpu, v.cuda->fault});
    find_kernel(name)->many_on (*v.target)(calls.data(), int(calls.size()));
    const std::string late = v.cuda->finish();
    mirror.copy_back();
    return error.empty() ? late : error;
}

}  // namespace

TEST_CASE("many updates at once have the bits of one after the other") {
    Random random(7);
    each_variant([&](const Variant& v) {
        if (!v.cuda) return;
        struct Tensor {
            Tile param, m, second, grad, master;
            std::vector<Tile*> operands(Tile* norm) {
                return {&param, &m,   &second,
                        &grad,  norm, param.dtype() == Dtype::bf16 ? &master : nullptr};
            }
        };
        std::vector<Tensor> alone, at_once;
        std::vector<nn_adamw_params> params;
        std::vector<std::vector<Tile*>> operands;
        Tile norm(Dtype::f64, {2.5});
        for (size_t n = 0; n < 60; ++n) {
            const size_t size = n % 7 == 0 ? 0 : n % 5 == 0 ? 5000 : n;
            alone.push_back({v.tile(random.values(size)), v.sums(random.values(size)),
                             v.sums(random.values(size, 0, 1)),
                             Tile(Dtype::f32, random.values(size)),
                             Tile(Dtype::f32, random.values(size))});
            params.push_back(adamw_params(size, Dtype::f32));
            params.back().lr = 0.01 * double(n + 1), params.back().clip = n % 2 ? 1 : 0;
        }
        at_once = alone;
        for (size_t i = 0; i < alone.size(); ++i) {
            CHECK(run(v, "adamw", params[i], alone[i].operands(&norm)) == "");
            operands.push_back(at_once[i].operands(&norm));
        }
        CHECK(run_many(v, "adamw", params, operands) == "");
        for (size_t i = 0; i < alone.size(); ++i)
            for (int k : {0, 1, 2, 5})
                if (Tile* tile = alone[i].operands(nullptr)[size_t(k)])
                    CHECK(tile->bytes() == operands[i][size_t(k)]->bytes());
    });
}

TEST_CASE("many sums of squares at once have the bits of one after the other") {
    Random random(8);
    each_variant([&](const Variant& v) {
        if (!v.cuda) return;
        std::vector<Tile> x, alone, at_once;
        std::vector<nn_sumsq_params> params;
        std::vector<std::vector<Tile*>> operands;
        for (size_t n = 0; n < 100; ++n) {
            const size_t size = n % 9 == 0 ? 0 : n % 10 == 0 ? 9000 : n;
            x.push_back(v.tile(random.values(size)));
            alone.emplace_back(Dtype::f64, Values{3});
            params.push_back({int64_t(size), n % 2 == 0});
        }
        at_once = alone;
        for (size_t i = 0; i < x.size(); ++i) {
            CHECK(run(v, "sumsq", params[i], {&alone[i], &x[i]}) == "");
            operands.push_back({&at_once[i], &x[i]});
        }
        CHECK(run_many(v, "sumsq", params, operands) == "");
        for (size_t i = 0; i < x.size(); ++i) CHECK(alone[i].bytes() == at_once[i].bytes());
    });
}
