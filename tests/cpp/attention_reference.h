// Attention and its gradient against the textbook formula in double, whole and for sequences cut
// into query and key tiles.
#pragma once
#include "kernels/params/attention.h"
#include "kernels/philox.h"
#include "tests/cpp/kernel_test.h"

namespace nn::test {

struct Shape {
    int64_t batch, heads, kv_heads, dim, len;
    bool causal;
    double dropout = 0;
    int32_t backend = nn_attention_auto;
    int64_t window = 0;
    bool padded = false;
    // 0 for the first and the last keys of a sequence, and some between.
    int64_t mask(int64_t b, int64_t j) const {
        return j >= 2 + b && j < len - 5 * b && j % 11 != 7;
    }
    bool sees(int64_t b, int64_t i, int64_t j) const {
        return j >= first_key(i) && (!padded || mask(b, j));
    }
    int64_t first_key(int64_t i) const { return window ? std::max<int64_t>(0, i + 1 - window) : 0; }
    int64_t width() const { return (heads + 2 * kv_heads) * dim; }
    double scale() const { return 1 / std::sqrt(double(dim)); }
};
constexpr uint64_t seed = 77, counter = 5;
constexpr int64_t batch_start = 2;

inline nn_attention_params params(const Shape& s) {
    nn_attention_params p{};
    p.batch = s.batch, p.heads = s.heads, p.kv_heads = s.kv_heads, p.head_dim = s.dim,
    p.q_len = p.k_len = s.len;
    p.scale = s.scale(), p.causal = s.causal, p.first = p.last = p.first_q = p.first_kv = 1;
    p.dropout = s.dropout, p.seed = seed, p.counter = counter, p.batch_start = batch_start,
    p.total_len = s.len, p.backend = s.backend, p.window = s.window,
    p.mask_dtype = int32_t(Dtype::i64);
    return p;
}

inline double kept(const Shape& s, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (s.dropout == 0) return 1;
    const uint64_t index = uint64_t((((batch_start + b) * s.heads + h) * s.len + i) * s.len + j);
    const uint32_t word = philox(seed, counter, index / 4).word[index % 4];
    return unit_float(word) >= float(s.dropout) ? 1 / (1 - s.dropout) : 0;
}

struct Reference {
    Values o, lse, dqkv;  // (B T, H D), (B H T), (B T, width)
};
// `dout` may be empty.
inline Reference reference(const Shape& s, const Values& qkv, const Values& dout) {
    const int64_t width = s.width(), out_width = s.heads * s.dim, group = s.heads / s.kv_heads;
    Reference out{Values(s.batch * s.len * out_width), Values(s.batch * s.heads * s.len),
                  Values(qkv.size())};
    for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
            for (int64_t i = 0; i < s.len; ++i) {
                const int64_t keys = s.causal ? i + 1 : s.len, kv = h / group;
                const int64_t q = (b * s.len + i) * width + h * s.dim,
                              o = (b * s.len + i) * out_width + h * s.dim;
                const auto k = [&](int64_t j) {
                    return (b * s.len + j) * width + (s.heads + kv) * s.dim;
                };
                const int64_t k_to_v = s.kv_heads * s.dim;
                Values weight(keys), dweight(keys);
                double largest = -INFINITY, sum = 0, delta = 0;
                for (int64_t j = 0; j < keys; ++j) {
                    weight[j] = s.sees(b, i, j) ? 0 : -INFINITY;
                    for (int64_t d = 0; d < s.dim; ++d)
                        weight[j] += s.scale() * qkv[q + d] * qkv[k(j) + d];
                    largest = std::max(largest, weight[j]);
                }
                const bool none = largest == -INFINITY;  // sees no key
                for (double& w : weight) sum += w = none ? 0 : std::exp(w - largest);
                for (double& w : weight) w /= none ? 1 : sum;
                out.lse[(b * s.heads + h) * s.len + i] = none ? 0 : largest + std::log(sum);
                for (int64_t j = 0; j < keys; ++j)
                    for (int64_t d = 0; d < s.dim; ++d)
                        out.o[o + d] += weight[j] * kept(s, b, h, i, j) * qkv[k(j) + k_to_v + d];
                if (dout.empty()) continue;
                for (int64_t j = 0; j < keys; ++j) {
                    const double keep = kept(s, b, h, i, j);
                    for (int64_t d = 0; d < s.dim; ++d) {
                        dweight[j] += keep * dout[o + d] * qkv[k(j) + k_to_v + d];
                        out.dqkv[k(j) + k_to_v + d] += keep * weight[j] * dout[o + d];
                    }
                    delta += weight[j] * dweight[j];
                }
                for (int64_t j = 0; j < keys; ++j)
                    for (int64_t d = 0; d < s.dim; ++d) {
                        const double dscore = s.scale() * weight[j] * (dweight[j] - delta);
                        out.dqkv[q + d] += dscore * qkv[k(j) + d];
                        out.dqkv[k(j) + d] += dscore * qkv[q + d];
                    }
            }
    return out;
}

// Rows [from, to) of every sequence of a (batch * len, cols).
inline Values tokens(const Values& all, const Shape& s, int64_t from, int64_t to) {
    const int64_t cols = int64_t(all.size()) / (s.batch * s.len);
    Values out;
    for (int64_t b = 0; b < s.batch; ++b)
        out.insert(out.end(), all.begin() + (b * s.len + from) * cols,
                   all.begin() + (b * s.len + to) * cols);
    return out;
}

// A sequence cut into tiles of `tile` tokens, the last one ragged.
struct Tiled {
    Shape s;
    int64_t tile, count = (s.len + tile - 1) / tile;
    int64_t from(int64_t t) const { return t * tile; }
    int64_t to(int64_t t) const { return std::min(s.len, (t + 1) * tile); }
    int64_t first_key(int64_t q) const { return s.first_key(from(q)) / tile; }
    int64_t last_key(int64_t q) const { return s.causal ? q : count - 1; }
    nn_attention_params pair(int64_t q, int64_t k) const {
        nn_attention_params p = params(s);
        p.q_len = to(q) - from(q), p.k_len = to(k) - from(k), p.q_start = from(q),
        p.k_start = from(k);
        p.first = k == first_key(q), p.last = k == last_key(q);
        p.first_q = k == first_key(q), p.first_kv = q == (s.causal ? k : 0);
        return p;
    }
};

inline void check_tiled(const Variant& v, const Tiled& t, Random& random, double spread = 1) {
    const Shape& s = t.s;
    INFO("batch " << s.batch << " heads " << s.heads << "/" << s.kv_heads << " dim " << s.dim
                  << " len " << s.len << " causal " << s.causal << " dropout " << s.dropout
                  << " window " << s.window << " padded " << s.padded << " tile " << t.tile);
    const Values qkv = v.tile(random.values(s.batch * s.len * s.width(), -spread, spread)).values();
    const Values dout = v.tile(random.values(s.batch * s.len * s.heads * s.dim)).values();
    const Reference want = reference(s, qkv, dout);
    // In bf16 the backward pass reads o rounded, and adds dq, dk and dv over tiles in bf16.
    const double tolerance = v.eps() * (1 + double(t.count)) + 30 * v.sum_eps() * spread * spread;
    const double grad_tolerance =
        3 * v.eps() * double(t.count) + 100 * v.sum_eps() * spread * spread;

    std::vector<Tile> qkv_tiles, dqkv_tiles, o_tiles, dout_tiles, stats_tiles, mask_tiles;
    Values mask;
    for (int64_t i = 0; i < s.batch * s.len; ++i) mask.push_back(s.mask(i / s.len, i % s.len));
    for (int64_t i = 0; i < t.count; ++i) {
        const int64_t rows = s.batch * (t.to(i) - t.from(i)), out_size = rows * s.heads * s.dim;
        qkv_tiles.push_back(v.tile(tokens(qkv, s, t.from(i), t.to(i))));
        dout_tiles.push_back(v.tile(tokens(dout, s, t.from(i), t.to(i))));
        dqkv_tiles.push_back(v.output(qkv_tiles.back().size()));
        mask_tiles.emplace_back(Dtype::i64, tokens(mask, s, t.from(i), t.to(i)));
        o_tiles.push_back(v.output(out_size));
        stats_tiles.push_back(v.sum_output(rows * s.heads * 2));
    }
    for (int64_t q = 0; q < t.count; ++q) {
        Tile acc = v.sum_output(o_tiles[q].size());
        for (int64_t k = t.first_key(q); k <= t.last_key(q); ++k) {
            const nn_attention_params p = t.pair(q, k);
            Tile* acc_operand = p.first && p.last ? nullptr : &acc;
            CHECK(run(v, "attention", p,
                      {&o_tiles[q], acc_operand, &stats_tiles[q], &qkv_tiles[q], &qkv_tiles[k],
                       s.padded ? &mask_tiles[k] : nullptr, nullptr}) == "");
        }
        check_close("o", o_tiles[q], tokens(want.o, s, t.from(q), t.to(q)), tolerance);
        const int64_t len = t.to(q) - t.from(q);
        Values lse, lse_want;
        int64_t rests = 0;  // statistics that are not (log-sum-exp, 1)
        for (int64_t bh = 0; bh < s.batch * s.heads; ++bh)
            for (int64_t i = 0; i < len; ++i) {
                lse.push_back(stats_tiles[q][(bh * len + i) * 2]);
                rests += stats_tiles[q][(bh * len + i) * 2 + 1] != 1;
                lse_want.push_back(want.lse[bh * s.len + t.from(q) + i]);
            }
        check_close("logsumexp", lse, lse_want, 30 * v.sum_eps() * spread * spread);
        CHECK(rests == 0);
    }
    for (int64_t q = 0; q < t.count; ++q)
        for (int64_t k = t.first_key(q); k <= t.last_key(q); ++k)
            run(v, "attention_backward", t.pair(q, k),
                {&dqkv_tiles[q], &dqkv_tiles[k], &qkv_tiles[q], &qkv_tiles[k], &o_tiles[q],
                 &dout_tiles[q], &stats_tiles[q], s.padded ? &mask_tiles[k] : nullptr, nullptr,
                 nullptr});
    for (int64_t i = 0; i < t.count; ++i)
        check_close("dqkv", dqkv_tiles[i], tokens(want.dqkv, s, t.from(i), t.to(i)),
                    grad_tolerance);
}

}  // namespace nn::test
