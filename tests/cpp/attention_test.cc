// Attention and its gradient against the textbook formula in double, whole and for sequences cut
// into query and key tiles, and the gradient against finite differences.
#include "kernels/philox.h"
#include "tests/cpp/kernel_test.h"
#include "tests/cpp/product_ways.h"

using namespace nn;
using namespace nn::test;

namespace {

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

nn_attention_params params(const Shape& s) {
    nn_attention_params p{};
    p.batch = s.batch, p.heads = s.heads, p.kv_heads = s.kv_heads, p.head_dim = s.dim,
    p.q_len = p.k_len = s.len;
    p.scale = s.scale(), p.causal = s.causal, p.first = p.last = p.first_q = p.first_kv = 1;
    p.dropout = s.dropout, p.seed = seed, p.counter = counter, p.batch_start = batch_start,
    p.total_len = s.len, p.backend = s.backend, p.window = s.window,
    p.mask_dtype = int32_t(Dtype::i64);
    return p;
}

double kept(const Shape& s, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (s.dropout == 0) return 1;
    const uint64_t index = uint64_t((((batch_start + b) * s.heads + h) * s.len + i) * s.len + j);
    const uint32_t word = philox(seed, counter, index / 4).word[index % 4];
    return unit_float(word) >= float(s.dropout) ? 1 / (1 - s.dropout) : 0;
}

struct Reference {
    Values o, lse, dqkv;  // (B T, H D), (B H T), (B T, width)
};
// `dout` may be empty.
Reference reference(const Shape& s, const Values& qkv, const Values& dout) {
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
Values tokens(const Values& all, const Shape& s, int64_t from, int64_t to) {
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

void check_tiled(const Variant& v, const Tiled& t, Random& random, double spread = 1) {
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

// The emulated device is slow and runs fewer cases.
bool slow(const Variant& v) { return v.cuda && v.cuda == emulated_device(); }

}  // namespace

TEST_CASE("attention and its gradient agree with the textbook formula") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (const Shape& s : {Shape{1, 1, 1, 1, 1, true}, Shape{2, 3, 3, 3, 17, true},
                               Shape{1, 2, 2, 65, 64, true}, Shape{2, 1, 1, 8, 65, false},
                               Shape{1, 2, 2, 64, 130, true}, Shape{1, 1, 1, 128, 70, true},
                               Shape{1, 1, 1, 5, 300, true}, Shape{1, 1, 1, 5, 300, false}})
            if (!slow(v) || s.len < 200) check_tiled(v, {s, s.len}, random);
    });
}

TEST_CASE("several query heads may share a key and value head") {
    Random random(2);
    each_variant([&](const Variant& v) {
        check_tiled(v, {{2, 6, 2, 4, 33, true}, 33}, random);
        check_tiled(v, {{1, 4, 1, 16, 33, false}, 20}, random);
    });
}

TEST_CASE("attention does not depend on the tiling of the sequence") {
    Random random(3);
    each_variant([&](const Variant& v) {
        for (int64_t tile : {1, 7, 64, 65, 128, 150})
            for (bool causal : {true, false})
                if (tile > 1 && (!slow(v) || tile == 64))
                    check_tiled(v, {{2, 2, 2, 8, 150, causal}, tile}, random);
        check_tiled(v, {{2, 2, 1, 3, 9, true}, 1}, random);
    });
}

TEST_CASE("dropout of attention does not depend on the tiling") {
    Random random(4);
    each_variant([&](const Variant& v) {
        for (int64_t tile : {150, 64, 37})
            if (!slow(v) || tile == 64)
                check_tiled(v, {{2, 2, 1, 8, 150, true, 0.25}, tile}, random);
        check_tiled(v, {{1, 1, 1, 4, 67, false, 0.6}, 30}, random);
    });
}

TEST_CASE("a query sees the keys of its window only, for any tiling") {
    Random random(11);
    const int32_t any = nn_attention_auto;
    each_variant([&](const Variant& v) {
        for (int64_t window : {1, 20, 64, 129})
            for (int64_t tile : {150, 64, 37})
                if (!slow(v) || (tile == 64 && window == 20))
                    check_tiled(v, {{1, 2, 1, 8, 150, true, 0, any, window}, tile}, random);
        check_tiled(v, {{1, 2, 1, 64, 90, true, 0, any, 30}, 90}, random);
        check_tiled(v, {{1, 1, 1, 8, 90, true, 0.25, any, 30}, 50}, random);
    });
}

TEST_CASE("no query sees a key that the mask hides, for any tiling") {
    Random random(12);
    const auto padded = [](int64_t batch, int64_t dim, int64_t len, bool causal, double dropout) {
        return Shape{batch, 2, 1, dim, len, causal, dropout, nn_attention_auto, 0, true};
    };
    each_variant([&](const Variant& v) {
        for (int64_t tile : {150, 64, 37})
            for (bool causal : {false, true})
                if (!slow(v) || (tile == 64 && !causal))
                    check_tiled(v, {padded(2, 8, 150, causal, 0), tile}, random);
        check_tiled(v, {padded(1, 64, 90, false, 0), 90}, random);
        check_tiled(v, {padded(2, 128, 100, true, 0.25), 45}, random);
        check_tiled(v, {padded(2, 5, 4, false, 0), 2}, random);  // nothing left of the second
    });
}

TEST_CASE("attention on tensor cores agrees with the formula for tiles, shared heads and dropout") {
    Random random(7);
    const int32_t ours = nn_attention_nnlua;
    each_variant(
        [&](const Variant& v) {
            check_tiled(v, {{2, 4, 2, 64, 150, true}, 70}, random);
            check_tiled(v, {{1, 2, 1, 128, 100, true, 0.25}, 45}, random);
            check_tiled(v, {{1, 2, 2, 64, 90, false, 0.4}, 64}, random);
            check_tiled(v, {{1, 1, 1, 128, 130, false, 0, ours}, 130}, random);
            check_tiled(v, {{1, 2, 1, 64, 130, true, 0, ours}, 130}, random);
        },
        {Dtype::bf16});
}

TEST_CASE("bf16 attention agrees with the formula with every implementation of products") {
    Random random(12);
    each_way([&](const Variant& v) {
        if (v.dtype != Dtype::bf16) return;
        check_tiled(v, {{2, 4, 2, 64, 150, true}, 70}, random);
        check_tiled(v, {{1, 2, 1, 32, 131, true, 0.25}, 45}, random);
        check_tiled(v, {{1, 1, 1, 128, 70, false}, 70}, random);
        check_tiled(v, {{1, 2, 1, 96, 90, true, 0, nn_attention_auto, 30}, 90}, random);
    });
}

namespace {
Variant emulated_bf16() { return {find_target("emulated"), Dtype::bf16, emulated_device()}; }
void skip() { std::puts("skipped: this build has no emulated device"); }
}  // namespace

TEST_CASE("attention by cuDNN agrees with the formula, in one chunk and in several") {
    Random random(8);
    each_variant(
        [&](const Variant& v) {
            if (!v.cuda || !v.cuda->gpu.cudnn) return;
            for (int32_t backend : {int32_t(nn_attention_auto), int32_t(nn_attention_cudnn)}) {
                check_tiled(v, {{2, 4, 2, 64, 60, true, 0, backend}, 60}, random);
                check_tiled(v, {{5, 2, 2, 64, 70, true, 0, backend}, 70}, random);
                check_tiled(v, {{1, 9, 3, 64, 100, true, 0, backend}, 100}, random);
                check_tiled(v, {{2, 2, 2, 64, 90, true, 0, backend}, 64}, random);
            }
            check_tiled(v, {{1, 2, 1, 128, 50, false}, 50}, random);
            check_tiled(v, {{1, 2, 1, 64, 90, false}, 64}, random);
        },
        {Dtype::bf16});
    const Variant emulated = emulated_bf16();
    if (!emulated.cuda) return skip();
    // The emulated cuDNN needs 8 KB per query and head; the workspace has 4 MB.
    const auto runs = [&](const Shape& s, int64_t tile) {
        const int64_t before = cudnn_executions();
        check_tiled(emulated, {s, tile}, random);
        return cudnn_executions() - before;
    };
    CHECK(runs({2, 4, 2, 64, 60, true}, 60) == 2);    // 480 queries in one chunk
    CHECK(runs({5, 2, 2, 64, 70, true}, 70) == 4);    // 3 and 2 sequences
    CHECK(runs({1, 9, 3, 64, 100, true}, 100) == 6);  // 3 heads at a time
    CHECK(runs({2, 2, 2, 64, 90, true}, 64) == 2);    // the first pair of tiles
    CHECK(runs({2, 2, 2, 32, 60, true}, 60) == 0);
    CHECK(runs({2, 2, 2, 64, 60, true, 0.1}, 60) == 0);
    CHECK(runs({2, 2, 2, 64, 60, true, 0, nn_attention_nnlua}, 60) == 0);
    CHECK(runs({1, 1, 1, 64, 210, true}, 210) == 0);  // no kernel for this length
}

TEST_CASE("each failed status of cuDNN is one error, and the next call succeeds") {
    const Variant emulated = emulated_bf16();
    if (!emulated.cuda) return skip();
    Random random(9);
    const Shape s{1, 1, 1, 64, 3, true};
    Tile qkv = emulated.tile(random.values(s.len * s.width())),
         dout = emulated.tile(random.values(s.len * s.dim)), o = emulated.output(dout.size()),
         stats = emulated.sum_output(size_t(s.len * 2)), dqkv = emulated.output(qkv.size());
    const std::vector<Tile*> forward{&o, nullptr, &stats, &qkv, &qkv, nullptr, nullptr},
        backward{&dqkv, &dqkv, &qkv, &qkv, &o, &dout, &stats, nullptr, nullptr, nullptr};
    const auto failing = [&](const std::string& status, const nn_attention_params& p,
                             const char* name, const std::vector<Tile*>& operands) {
        inject_failure((std::string(name) + ":1:status:" + status).c_str());
        announce_call(name);
        const std::string error = run(emulated, name, p, operands);
        inject_failure("");
        take_failure();
        return error;
    };
    for (const char* name : {"attention", "attention_backward"}) {
        const auto& operands = name == std::string("attention") ? forward : backward;
        nn_attention_params p = params(s);
        int failures = 0, later = 0;
        // A failed plan is not kept; once there is one, only the execution can fail.
        for (std::string error = "-"; !error.empty(); ++failures) {
            error = failing(std::to_string(failures + 1), p, name, operands);
            if (error.empty()) break;
            INFO(name << ", status " << failures + 1 << ": " << error);
            const bool known = error.find("CUDA device 0: cudnn") == 0 ||
                               error.find("CUDA device 0: the launch failed: ") == 0;
            CHECK(known);
        }
        CHECK(failures > 150);
        for (; !failing(std::to_string(later + 1), p, name, operands).empty(); ++later) {
        }
        CHECK(later == 8);
    }
    check_close("o", tokens(o.values(), s, 0, 3), reference(s, qkv.values(), {}).o, 0.01);
}

TEST_CASE("a call for cuDNN without cuDNN is an error") {
    const Variant emulated = emulated_bf16();
    if (!emulated.cuda) return skip();
    CudaDevice without = *emulated.cuda;
    without.gpu.cudnn = nullptr;
    const Variant v{emulated.target, Dtype::bf16, &without};
    Random random(10);
    const Shape s{1, 1, 1, 64, 5, true, 0, nn_attention_cudnn};
    Tile qkv = v.tile(random.values(s.len * s.width())), o = v.output(size_t(s.len * s.dim)),
         stats = v.sum_output(size_t(s.len * 2));
    const auto attend = [&](const Shape& shape) {
        return run(v, "attention", params(shape),
                   {&o, nullptr, &stats, &qkv, &qkv, nullptr, nullptr});
    };
    CHECK(attend(s).find("nn.attention_backend is \"cudnn\", but ") == 0);
    CHECK(attend({1, 1, 1, 64, 5, true}) == "");
}

TEST_CASE("large scores do not overflow, and small ones keep their precision") {
    Random random(5);
    each_variant([&](const Variant& v) {
        if (v.dtype != Dtype::bf16) check_tiled(v, {{1, 2, 2, 16, 90, true}, 40}, random, 12);
    });
}

TEST_CASE("the gradient of attention equals finite differences") {
    Random random(6);
    const Variant v{&cpu_target(), Dtype::f64};
    for (double dropout : {0.0, 0.3}) {
        const Shape s{2, 2, 1, 3, 5, true, dropout};
        Values qkv = random.values(s.batch * s.len * s.width());
        const Values dout = random.values(s.batch * s.len * s.heads * s.dim);
        Tile o = v.output(dout.size()), stats = v.output(s.batch * s.heads * s.len * 2),
             dqkv = v.output(qkv.size());
        const auto forward = [&] {
            Tile tile = v.tile(qkv);
            run(v, "attention", params(s), {&o, nullptr, &stats, &tile, &tile, nullptr, nullptr});
            return dot(o.values(), dout);
        };
        const Values want = finite_difference(qkv, forward);
        forward();
        Tile tile = v.tile(qkv), dout_tile = v.tile(dout);
        run(v, "attention_backward", params(s),
            {&dqkv, &dqkv, &tile, &tile, &o, &dout_tile, &stats, nullptr, nullptr, nullptr});
        check_close("dqkv", dqkv, want, 1e-8);
    }
}
