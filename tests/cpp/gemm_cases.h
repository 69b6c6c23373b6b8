// Calls of gemm on random operands, and their comparison with a plain product in double. A sum of k
// terms in [-1, 1] may have k/2 roundings.
#pragma once
#include "kernels/params/gemm.h"
#include "tests/cpp/glu.h"
#include "tests/cpp/kernel_test.h"

namespace nn::test {

struct Case {
    nn_gemm_params p;
    bool has_bias, has_aux;
    int64_t rows_a() const { return p.trans_a ? p.k : p.m; }
    int64_t rows_b() const { return p.trans_b ? p.n : p.k; }
};

// lda, ldb and ldc are the smallest possible plus `pad`.
inline Case make_case(int64_t m, int64_t n, int64_t k, int trans, double beta, int epilogue,
                      int64_t pad = 0) {
    const int32_t ta = trans & 1, tb = trans >> 1;
    return {{m, n, k, (ta ? m : k) + pad, (tb ? k : n) + pad, n + pad, 1, 0, 0, 0, 0.75, beta, ta,
             tb, epilogue, 0, 0},
            epilogue > 0,
            epilogue == 2};
}

// The expected matrix before GELU, in c's layout. Elements between rows keep their values.
inline Values product(const Case& c, const Values& a, const Values& b, const Values& c0,
                      const Values& bias) {
    Values out = c0;
    for (int64_t i = 0; i < c.p.m; ++i)
        for (int64_t j = 0; j < c.p.n; ++j) {
            double sum = 0;
            for (int64_t l = 0; l < c.p.k; ++l)
                sum += a[c.p.trans_a ? l * c.p.lda + i : i * c.p.lda + l] *
                       b[c.p.trans_b ? j * c.p.ldb + l : l * c.p.ldb + j];
            double& to = out[i * c.p.ldc + j];
            to = c.p.alpha * sum + (c.p.beta == 0 ? 0 : c.p.beta * to);
            if (c.p.epilogue && c.has_bias) to += bias[j];
        }
    return out;
}

inline void check_case(const Variant& v, const Case& c, Random& random) {
    const nn_gemm_params& p = c.p;
    INFO("m " << p.m << " n " << p.n << " k " << p.k << " trans " << p.trans_a << p.trans_b
              << " beta " << p.beta << " epilogue " << p.epilogue << " bias " << c.has_bias
              << " aux " << c.has_aux << " ldc " << p.ldc);
    Tile a = v.tile(random.values(c.rows_a() * p.lda)),
         b = v.tile(random.values(c.rows_b() * p.ldb));
    Tile bias = v.tile(random.values(p.n)), aux = v.output(p.m * p.ldc),
         out = v.tile(random.values(p.m * p.ldc));
    const Values before = out.values();
    if (p.beta == 0)
        for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) out.set(i * p.ldc + j, NAN);
    CHECK(run(v, "gemm", p,
              {&out, &a, &b, c.has_bias ? &bias : nullptr, c.has_aux ? &aux : nullptr}) == "");

    const Values sums = product(c, a.values(), b.values(), before, bias.values());
    const double tolerance = 2 * v.eps() + v.sum_eps() * (4 + 0.5 * double(p.k));
    Values want = sums;
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
            const int64_t at = i * p.ldc + j;
            if (p.epilogue == 2) want[at] = reference_gelu(sums[at]);
            if (c.has_aux &&
                !(std::fabs(aux[at] - sums[at]) <= tolerance * (1 + std::fabs(sums[at]))))
                CHECK(aux[at] == sums[at]);
        }
    check_close("c", out, want, tolerance);
}

// Checks c and its column sums for a product with epilogue 3.
inline void check_slope_case(const Variant& v, const Case& c, Random& random) {
    const nn_gemm_params& p = c.p;
    INFO("m " << p.m << " n " << p.n << " k " << p.k << " trans " << p.trans_a << p.trans_b
              << " beta " << p.beta << " ldc " << p.ldc);
    Tile a = v.tile(random.values(c.rows_a() * p.lda)),
         b = v.tile(random.values(c.rows_b() * p.ldb)),
         pre = v.tile(random.values(p.m * p.ldc, -4, 4)), out = v.tile(random.values(p.m * p.ldc)),
         sums = v.sum_output(p.n);
    Values want = product(c, a.values(), b.values(), out.values(), Values(p.n));
    Values sums_want(p.n), magnitude(p.n);
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
            double& to = want[i * p.ldc + j];
            to *= reference_gelu_slope(pre[i * p.ldc + j]);
            sums_want[j] += to, magnitude[j] += std::fabs(to);
            if (p.beta == 0) out.set(i * p.ldc + j, NAN);
        }
    Tile alone = out;
    CHECK(run(v, "gemm_dgelu", p, {&out, &a, &b, &sums, &pre}) == "");
    CHECK(run(v, "gemm_dgelu", p, {&alone, &a, &b, nullptr, &pre}) == "");
    const double tolerance = 2 * v.eps() + 2 * v.sum_eps() * (4 + 0.5 * double(p.k));
    check_close("c", out, want, tolerance);
    check_close("c without sums", alone, want, tolerance);
    check_close("sums", sums, sums_want, tolerance,
                *std::max_element(magnitude.begin(), magnitude.end()) / 2);
}

// Checks dx and its column sums for a product with epilogue 4 + activation. ldc is 2 n plus `pad`.
inline void check_glu_case(const Variant& v, Case c, int32_t activation, int64_t pad,
                           Random& random) {
    nn_gemm_params& p = c.p;
    p.epilogue = 4 + activation, p.ldc = 2 * p.n + pad;
    INFO("m " << p.m << " n " << p.n << " k " << p.k << " trans " << p.trans_a << p.trans_b
              << " beta " << p.beta << " epilogue " << p.epilogue << " ldc " << p.ldc);
    Tile a = v.tile(random.values(c.rows_a() * p.lda)),
         b = v.tile(random.values(c.rows_b() * p.ldb)),
         x = v.tile(random.values(p.m * p.ldc, -4, 4)), dx = v.tile(random.values(p.m * p.ldc)),
         sums = v.sum_output(2 * p.n);
    Values want = product(c, a.values(), b.values(), dx.values(), Values(p.n));
    Values sums_want(2 * p.n), magnitude(2 * p.n);
    for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j) {
            const int64_t gate = i * p.ldc + j, up = gate + p.n;
            const double d = want[gate];
            want[gate] = d * x[up] * reference_gate_slope(activation, x[gate]);
            want[up] = d * reference_gate(activation, x[gate]);
            sums_want[j] += want[gate], magnitude[j] += std::fabs(want[gate]);
            sums_want[p.n + j] += want[up], magnitude[p.n + j] += std::fabs(want[up]);
            if (p.beta == 0) dx.set(gate, NAN);
            dx.set(up, NAN);
        }
    Tile alone = dx;
    CHECK(run(v, "gemm_dglu", p, {&dx, &a, &b, &sums, &x}) == "");
    CHECK(run(v, "gemm_dglu", p, {&alone, &a, &b, nullptr, &x}) == "");
    // The activations are up to 4 times the product, and the slopes have an error of 1e-9.
    const double tolerance = 3 * v.eps() + 8 * v.sum_eps() * (4 + 0.5 * double(p.k)) + 1e-8;
    check_close("dx", dx, want, tolerance);
    check_close("dx without sums", alone, want, tolerance);
    check_close("sums", sums, sums_want, tolerance,
                *std::max_element(magnitude.begin(), magnitude.end()));
}

}  // namespace nn::test
