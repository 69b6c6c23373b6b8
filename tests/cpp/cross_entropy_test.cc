// The four kernels of cross-entropy against the definition in double and finite differences, whole
// and over tiles of the vocabulary and of the rows.
#include "kernels/params/cross_entropy.h"

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

constexpr int64_t ignored = -100;

struct Problem {
    int64_t rows, vocab;
    Values logits, targets;
};

Problem make_problem(Random& random, int64_t rows, int64_t vocab, double spread) {
    Problem problem{rows, vocab, random.values(rows * vocab, -spread, spread),
                    random.integers(rows, 0, vocab - 1)};
    for (int64_t i = 1; i < rows; i += 3) problem.targets[i] = double(ignored);
    return problem;
}

struct Solution {
    double count = 0, loss = 0;
    Values gradient;  // of scale * mean loss
};
Solution solve(const Problem& problem, double scale) {
    Solution out;
    for (double target : problem.targets) out.count += target != ignored;
    out.gradient.assign(problem.logits.size(), 0);
    for (int64_t i = 0; i < problem.rows; ++i) {
        if (problem.targets[i] == ignored) continue;
        const double* row = problem.logits.data() + i * problem.vocab;
        const double largest = *std::max_element(row, row + problem.vocab);
        double sum = 0;
        for (int64_t j = 0; j < problem.vocab; ++j) sum += std::exp(row[j] - largest);
        out.loss += largest + std::log(sum) - row[int64_t(problem.targets[i])];
        for (int64_t j = 0; j < problem.vocab; ++j)
            out.gradient[i * problem.vocab + j] =
                scale * (std::exp(row[j] - largest) / sum - (j == problem.targets[i])) / out.count;
    }
    return out;
}

// Columns [from, from + n) of a row-major (rows, vocab), with `pad` times NaN after each row.
Values columns(const Problem& problem, int64_t from, int64_t n, int64_t pad) {
    Values out;
    for (int64_t i = 0; i < problem.rows; ++i) {
        const auto row = problem.logits.begin() + i * problem.vocab + from;
        out.insert(out.end(), row, row + n);
        out.insert(out.end(), size_t(pad), NAN);
    }
    return out;
}

struct Outcome {
    double count, loss;
    Values gradient;
};
// Runs the kernels over vocabulary tiles of tile_cols columns. in_place: gradients overwrite
// logits. Rows of tiles have `pad` elements more than columns.
Outcome run_tiled(const Variant& v, const Problem& problem, int64_t tile_cols, double scale,
                  Dtype ids, bool in_place, int64_t pad = 0) {
    nn_cross_entropy_params p{problem.rows, 0,     0, 0,           problem.vocab,
                              ignored,      scale, 1, int32_t(ids)};
    Tile count = Tile::poisoned(Dtype::f64, 1), loss = Tile::poisoned(Dtype::f64, 1),
         targets(ids, problem.targets);
    Tile stats = v.sum_output(3 * problem.rows);
    std::vector<Tile> tiles;
    CHECK(run(v, "ce_count", p, {&count, &targets}) == "");
    for (int64_t from = 0; from < problem.vocab; from += tile_cols)
        tiles.push_back(
            v.tile(columns(problem, from, std::min(tile_cols, problem.vocab - from), pad)));
    for (size_t t = 0; t < tiles.size(); ++t) {
        const size_t i = in_place ? tiles.size() - 1 - t : t;  // the order does not matter
        p.col_start = int64_t(i) * tile_cols, p.ld = int64_t(tiles[i].size()) / p.rows;
        p.cols = p.ld - pad;
        p.first = t == 0;
        run(v, "ce_stats", p, {&stats, &tiles[i], &targets});
    }
    p.first = 1;
    run(v, "ce_loss", p, {&loss, &stats, &targets});
    Outcome out{count[0], loss[0], Values(problem.rows * problem.vocab)};
    for (size_t t = 0; t < tiles.size(); ++t) {
        p.col_start = int64_t(t) * tile_cols,
        p.cols = std::min(tile_cols, problem.vocab - p.col_start), p.ld = p.cols + pad;
        Tile fresh = v.output(tiles[t].size());
        Tile& d = in_place ? tiles[t] : fresh;
        run(v, "ce_grad", p, {&d, &tiles[t], &stats, &targets, &count});
        for (int64_t i = 0; i < p.rows; ++i)
            for (int64_t j = 0; j < p.cols; ++j)
                out.gradient[i * problem.vocab + p.col_start + j] = d[i * p.ld + j];
    }
    return out;
}

}  // namespace

TEST_CASE("cross-entropy and its gradient agree with the definition for any vocabulary tiling") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (const auto& [rows, vocab] :
             {std::pair<int64_t, int64_t>{1, 1}, {3, 17}, {17, 3}, {5, 65}, {2, 1000}})
            for (int64_t tile_cols : {vocab, int64_t(7), int64_t(64)})
                for (double spread : {3.0, 300.0}) {
                    INFO("rows " << rows << " vocab " << vocab << " tile " << tile_cols
                                 << " spread " << spread);
                    Problem problem = make_problem(random, rows, vocab, spread);
                    problem.logits = v.tile(problem.logits).values();  // rounded to the dtype
                    const Solution want = solve(problem, 0.5);
                    const Outcome got =
                        run_tiled(v, problem, tile_cols, 0.5,
                                  tile_cols == 7 ? Dtype::i32 : Dtype::i64, tile_cols == 64,
                                  tile_cols == 7    ? 1
                                  : tile_cols == 64 ? 8 - vocab % 8
                                                    : 0);
                    CHECK(got.count == want.count);
                    check_close("loss", {got.loss}, {want.loss}, 10 * v.sum_eps(), 1 + spread * 4);
                    check_close("gradient", got.gradient, want.gradient, v.eps() + 30 * v.sum_eps(),
                                0.01);
                }
    });
}

TEST_CASE("cross-entropy's gradient equals finite differences") {
    Random random(2);
    const Variant v{&cpu_target(), Dtype::f64};
    Problem problem = make_problem(random, 4, 9, 2);
    const Outcome got = run_tiled(v, problem, 4, 1, Dtype::i32, false);
    const Values want = finite_difference(problem.logits, [&] {
        const Outcome at = run_tiled(v, problem, 4, 1, Dtype::i32, false);
        return at.loss / at.count;
    });
    check_close("gradient", got.gradient, want, 1e-9);
}

TEST_CASE("count and loss add up over row tiles") {
    each_variant([&](const Variant& v) {
        Tile count = Tile::poisoned(Dtype::f64, 1), loss = Tile::poisoned(Dtype::f64, 1);
        Tile targets(Dtype::i64, {0, double(ignored)}), stats = v.sums({1, 2, 0.5, NAN, NAN, NAN});
        for (int first : {1, 0, 0}) {
            const nn_cross_entropy_params p{2, 4, 4, 0, 4, ignored, 1, first, int32_t(Dtype::i64)};
            run(v, "ce_count", p, {&count, &targets});
            run(v, "ce_loss", p, {&loss, &stats, &targets});
        }
        CHECK(count[0] == 3);
        CHECK(loss[0] == Approx(3 * (0.5 + std::log(2.0))));
    });
}

TEST_CASE("with every row ignored the count, the loss and the gradient are zero") {
    each_variant([&](const Variant& v) {
        const Problem problem{2, 3, {1, 2, 3, 4, 5, 6}, {double(ignored), double(ignored)}};
        const Outcome got = run_tiled(v, problem, 3, 1, Dtype::i64, false);
        CHECK(got.count == 0);
        CHECK(got.loss == 0);
        check_close("gradient", got.gradient, Values(6, 0), 0);
    });
}

TEST_CASE("a logit of minus infinity has no weight, whichever tile it is in") {
    each_variant([&](const Variant& v) {
        const double none = -INFINITY;
        const Problem problem{2, 4, {none, none, 1, 2, 3, 1, none, none}, {3, 0}};
        const Outcome got = run_tiled(v, problem, 2, 1, Dtype::i64, false),
                      whole = run_tiled(v, problem, 4, 1, Dtype::i64, false);
        const double p1 = 1 / (1 + std::exp(1.0)), p2 = 1 / (1 + std::exp(2.0));
        CHECK(got.loss == Approx(-std::log(1 - p1) - std::log(1 - p2)));
        check_close("loss", {got.loss}, {whole.loss}, 4 * v.sum_eps());
        check_close("gradient", got.gradient, {0, 0, p1 / 2, -p1 / 2, -p2 / 2, p2 / 2, 0, 0},
                    v.eps() + 8 * v.sum_eps());
    });
}

TEST_CASE("ce_count reports a target outside the vocabulary") {
    each_variant([&](const Variant& v) {
        for (int64_t wrong : {int64_t(4), int64_t(-1)}) {
            const nn_cross_entropy_params p{3, 4, 4, 0, 4, ignored, 1, 1, int32_t(Dtype::i64)};
            Tile count = Tile::poisoned(Dtype::f64, 1),
                 targets(Dtype::i64, {0, double(wrong), double(ignored)});
            CHECK(run(v, "ce_count", p, {&count, &targets}) ==
                  "target " + std::to_string(wrong) + " is outside the vocabulary of 4");
        }
    });
}
