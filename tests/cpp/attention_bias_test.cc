// Cross-attention and T5's bias of the scores by distance, with their gradients, against the
// textbook formula in double, for sequences cut into query and key tiles. The buckets of distances
// are those of transformers (T5Attention._relative_position_bucket).
#include "kernels/params/attention.h"
#include "kernels/relative_bias.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

// cross: queries and keys of different sequences; else they are packed, and q_len = k_len.
struct Case {
    int64_t batch, heads, kv_heads, dim, q_len, k_len;
    bool cross, causal;
    int64_t buckets = 0, max_distance = 0;
    bool padded = false;
    int64_t q_size() const { return heads * dim; }
    int64_t kv_size() const { return 2 * kv_heads * dim; }
    int64_t q_width() const { return cross ? q_size() : q_size() + kv_size(); }
    int64_t kv_width() const { return cross ? kv_size() : q_width(); }
    bool sees(int64_t b, int64_t i, int64_t j) const {
        return (!causal || j <= i) && (!padded || (j >= b && j % 7 != 5));
    }
    int64_t query(int64_t b, int64_t i, int64_t h) const {
        return (b * q_len + i) * q_width() + h * dim;
    }
    int64_t key(int64_t b, int64_t j, int64_t h) const {
        return (b * k_len + j) * kv_width() + (cross ? 0 : q_size()) + h / (heads / kv_heads) * dim;
    }
    int64_t value(int64_t b, int64_t j, int64_t h) const { return key(b, j, h) + kv_size() / 2; }
    int64_t out(int64_t b, int64_t i, int64_t h) const {
        return ((b * q_len + i) * heads + h) * dim;
    }
};

struct Gradients {
    Values o, dq, dkv, dbias;  // dq and dkv have the layouts of q and kv
};

// For a packed case, kv is q, and dkv is part of dq.
Gradients reference(const Case& s, const Values& q, const Values& kv, const Values& bias,
                    const Values& dout) {
    Gradients g{Values(dout.size()), Values(q.size()), Values(kv.size()), Values(bias.size())};
    const auto buckets = baseline::relative_buckets(s.buckets, s.max_distance, s.causal);
    const double scale = 1 / std::sqrt(double(s.dim));
    for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
            for (int64_t i = 0; i < s.q_len; ++i) {
                Values weight(s.k_len), dweight(s.k_len);
                double largest = -INFINITY, sum = 0, delta = 0;
                for (int64_t j = 0; j < s.k_len; ++j) {
                    weight[j] = s.sees(b, i, j) ? 0 : -INFINITY;
                    if (s.buckets) weight[j] += bias[buckets.of(i - j) * s.heads + h];
                    for (int64_t d = 0; d < s.dim; ++d)
                        weight[j] += scale * q[s.query(b, i, h) + d] * kv[s.key(b, j, h) + d];
                    largest = std::max(largest, weight[j]);
                }
                if (largest == -INFINITY) continue;
                for (double& w : weight) sum += w = std::exp(w - largest);
                for (int64_t j = 0; j < s.k_len; ++j) {
                    weight[j] /= sum;
                    for (int64_t d = 0; d < s.dim; ++d) {
                        const double from = dout[s.out(b, i, h) + d];
                        g.o[s.out(b, i, h) + d] += weight[j] * kv[s.value(b, j, h) + d];
                        dweight[j] += from * kv[s.value(b, j, h) + d];
                        g.dkv[s.value(b, j, h) + d] += weight[j] * from;
                    }
                    delta += weight[j] * dweight[j];
                }
                for (int64_t j = 0; j < s.k_len; ++j) {
                    const double dscore = weight[j] * (dweight[j] - delta);
                    if (s.buckets) g.dbias[buckets.of(i - j) * s.heads + h] += dscore;
                    for (int64_t d = 0; d < s.dim; ++d) {
                        g.dq[s.query(b, i, h) + d] += scale * dscore * kv[s.key(b, j, h) + d];
                        g.dkv[s.key(b, j, h) + d] += scale * dscore * q[s.query(b, i, h) + d];
                    }
                }
            }
    if (!s.cross)
        for (size_t n = 0; n < q.size(); ++n) g.dkv[n] = g.dq[n] += g.dkv[n];
    return g;
}

// Rows [from, to) of every sequence of (batch * len, cols).
Values part(const Values& all, int64_t batch, int64_t len, int64_t from, int64_t to) {
    const int64_t cols = int64_t(all.size()) / (batch * len);
    Values out;
    for (int64_t b = 0; b < batch; ++b)
        out.insert(out.end(), all.begin() + (b * len + from) * cols,
                   all.begin() + (b * len + to) * cols);
    return out;
}

// Sequences of `len` tokens, cut every `tile`.
struct Cuts {
    int64_t len, tile, count = (len + tile - 1) / tile;
    int64_t from(int64_t t) const { return t * tile; }
    int64_t to(int64_t t) const { return std::min(len, from(t) + tile); }
    std::vector<Tile> tiles(const Variant& v, const Values& all, int64_t batch) const {
        std::vector<Tile> out;
        for (int64_t t = 0; t < count; ++t)
            out.push_back(v.tile(part(all, batch, len, from(t), to(t))));
        return out;
    }
};

nn_attention_params params_of(const Case& s, const Cuts& q, const Cuts& k, int64_t i, int64_t j) {
    nn_attention_params p{};
    p.batch = s.batch, p.heads = s.heads, p.kv_heads = s.kv_heads, p.head_dim = s.dim;
    p.q_start = q.from(i), p.q_len = q.to(i) - q.from(i);
    p.k_start = k.from(j), p.k_len = k.to(j) - k.from(j);
    p.scale = 1 / std::sqrt(double(s.dim)), p.causal = s.causal, p.cross = s.cross;
    p.total_len = std::max(s.q_len, s.k_len), p.mask_dtype = int32_t(Dtype::i32);
    p.buckets = s.buckets, p.max_distance = s.max_distance;
    p.first = p.first_q = j == 0, p.last = j == (s.causal ? i : k.count - 1);
    p.first_kv = i == (s.causal ? j : 0);
    return p;
}

void check_case(const Variant& v, const Case& s, int64_t q_tile, int64_t k_tile, Random& random) {
    INFO("cross " << s.cross << " causal " << s.causal << " dim " << s.dim << " queries " << s.q_len
                  << " keys " << s.k_len << " buckets " << s.buckets << " tiles " << q_tile << ", "
                  << k_tile);
    const auto rounded = [&](int64_t n) { return v.tile(random.values(n)).values(); };
    const Values q = rounded(s.batch * s.q_len * s.q_width());
    const Values kv = s.cross ? rounded(s.batch * s.k_len * s.kv_width()) : q;
    const Values bias = rounded(s.buckets * s.heads),
                 dout = rounded(s.batch * s.q_len * s.q_size());
    const Gradients want = reference(s, q, kv, bias, dout);
    const Cuts rows{s.q_len, q_tile}, columns{s.k_len, k_tile};
    Values seen;
    for (int64_t n = 0; n < s.batch * s.k_len; ++n)
        seen.push_back(s.sees(n / s.k_len, s.k_len, n % s.k_len));
    auto q_tiles = rows.tiles(v, q, s.batch), kv_tiles = columns.tiles(v, kv, s.batch),
         douts = rows.tiles(v, dout, s.batch), dq = q_tiles, dkv = kv_tiles;
    Tile bias_tile = v.tile(bias);
    Values dbias(bias.size());
    const double tolerance = v.eps() * double(1 + columns.count) + 40 * v.sum_eps();
    const double grad_tolerance =
        3 * v.eps() * double(columns.count + rows.count) + 200 * v.sum_eps();
    for (Tile& tile : dq) tile.poison();
    for (Tile& tile : dkv) tile.poison();
    for (int64_t i = 0; i < rows.count; ++i) {
        Tile o = v.output(douts[i].size()), acc = v.sum_output(o.size());
        Tile stats = v.sum_output(2 * o.size() / size_t(s.dim)), sums = v.sum_output(bias.size());
        const int64_t end = s.causal ? i + 1 : columns.count;
        std::vector<Tile> masks;
        for (int64_t j = 0; j < end; ++j)
            masks.emplace_back(Dtype::i32,
                               part(seen, s.batch, s.k_len, columns.from(j), columns.to(j)));
        Tile* const b = s.buckets ? &bias_tile : nullptr;
        for (int64_t j = 0; j < end; ++j)
            CHECK(run(v, "attention", params_of(s, rows, columns, i, j),
                      {&o, end == 1 ? nullptr : &acc, &stats, &q_tiles[i],
                       s.cross ? &kv_tiles[j] : &q_tiles[j], s.padded ? &masks[j] : nullptr, b}) ==
                  "");
        check_close("o", o, part(want.o, s.batch, s.q_len, rows.from(i), rows.to(i)), tolerance);
        for (int64_t j = 0; j < end; ++j)
            CHECK(run(v, "attention_backward", params_of(s, rows, columns, i, j),
                      {&dq[i], s.cross ? &dkv[j] : &dq[j], &q_tiles[i],
                       s.cross ? &kv_tiles[j] : &q_tiles[j], &o, &douts[i], &stats,
                       s.padded ? &masks[j] : nullptr, b, b ? &sums : nullptr}) == "");
        for (size_t n = 0; n < bias.size(); ++n) dbias[n] += sums[n];
    }
    for (int64_t i = 0; i < rows.count; ++i)
        check_close("dq", dq[i], part(want.dq, s.batch, s.q_len, rows.from(i), rows.to(i)),
                    grad_tolerance);
    for (int64_t j = 0; s.cross && j < columns.count; ++j)
        check_close("dkv", dkv[j], part(want.dkv, s.batch, s.k_len, columns.from(j), columns.to(j)),
                    grad_tolerance);
    check_close("dbias", dbias, want.dbias, 3 * grad_tolerance * std::sqrt(double(s.q_len)));
}

}  // namespace

TEST_CASE("cross-attention agrees with the formula, for any tiling of queries and keys",
          "[sweep]") {
    Random random(21);
    each_variant([&](const Variant& v) {
        check_case(v, {2, 4, 2, 5, 9, 17, true, false}, 9, 17, random);
        check_case(v, {2, 2, 2, 64, 40, 70, true, false, 0, 0, true}, 40, 30, random);
        if (slow(v)) return;
        check_case(v, {1, 2, 1, 8, 150, 70, true, false}, 64, 33, random);
        check_case(v, {1, 1, 1, 128, 3, 200, true, false, 0, 0, true}, 2, 200, random);
    });
}

TEST_CASE("a bias by distance is added to the scores, for any tiling, and has a gradient",
          "[sweep]") {
    Random random(22);
    each_variant([&](const Variant& v) {
        check_case(v, {2, 3, 3, 5, 20, 20, false, true, 6, 10}, 20, 20, random);
        check_case(v, {2, 2, 1, 64, 40, 40, false, false, 8, 20, true}, 30, 30, random);
        if (slow(v)) return;
        check_case(v, {1, 2, 2, 8, 200, 200, false, true, 32, 128}, 70, 70, random);
        check_case(v, {1, 2, 2, 8, 200, 200, false, false, 32, 128}, 64, 64, random);
    });
}

TEST_CASE("buckets of distances are those of transformers") {
    // The distances at which a new bucket begins, for keys before the query and after it.
    const auto starts = [](int64_t buckets, int64_t max_distance, bool causal, int64_t sign) {
        const auto all = baseline::relative_buckets(buckets, max_distance, causal);
        std::vector<std::pair<int64_t, int32_t>> out;
        for (int64_t n = 0; n < 300; ++n)
            if (n == 0 || all.of(sign * n) != all.of(sign * (n - 1)))
                out.push_back({n, all.of(sign * n)});
        return out;
    };
    using List = std::vector<std::pair<int64_t, int32_t>>;
    CHECK(starts(32, 128, false, 1) == List{{0, 0},
                                            {1, 1},
                                            {2, 2},
                                            {3, 3},
                                            {4, 4},
                                            {5, 5},
                                            {6, 6},
                                            {7, 7},
                                            {8, 8},
                                            {12, 9},
                                            {16, 10},
                                            {23, 11},
                                            {32, 12},
                                            {46, 13},
                                            {64, 14},
                                            {91, 15}});
    CHECK(starts(32, 128, false, -1) == List{{0, 0},
                                             {1, 17},
                                             {2, 18},
                                             {3, 19},
                                             {4, 20},
                                             {5, 21},
                                             {6, 22},
                                             {7, 23},
                                             {8, 24},
                                             {12, 25},
                                             {16, 26},
                                             {23, 27},
                                             {32, 28},
                                             {46, 29},
                                             {64, 30},
                                             {91, 31}});
    CHECK(starts(32, 128, true, 1) ==
          List{{0, 0},   {1, 1},   {2, 2},   {3, 3},   {4, 4},   {5, 5},   {6, 6},   {7, 7},
               {8, 8},   {9, 9},   {10, 10}, {11, 11}, {12, 12}, {13, 13}, {14, 14}, {15, 15},
               {16, 16}, {19, 17}, {21, 18}, {24, 19}, {27, 20}, {31, 21}, {35, 22}, {40, 23},
               {46, 24}, {52, 25}, {59, 26}, {67, 27}, {77, 28}, {87, 29}, {99, 30}, {113, 31}});
    CHECK(starts(32, 128, true, -1) == List{{0, 0}});
    CHECK(starts(8, 20, false, -1) == List{{0, 0}, {1, 5}, {2, 6}, {7, 7}});
    CHECK(starts(6, 40, true, 1) == List{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {8, 4}, {17, 5}});
}
