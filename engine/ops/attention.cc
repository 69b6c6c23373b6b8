// Attention over packed queries, keys and values, by pairs of a query tile and a key tile with an
// online softmax; pairs wholly above the diagonal are never made. (Dao et al. 2022, arXiv
// 2205.14135, for the recurrences.)
#include <cmath>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

struct Heads {
    int64_t heads, kv_heads, head_dim;
};

Heads check_heads(const Call& c, const Tensor& qkv) {
    c.need(qkv.rank() == 3, "qkv is %s; it must be (batch, time, (heads + 2 kv_heads) * head_dim)",
           to_string(qkv.shape()).c_str());
    const int64_t heads = c.integer("heads");
    const int64_t kv_heads = c.given("kv_heads") ? c.integer("kv_heads") : heads;
    c.need(heads >= 1 && kv_heads >= 1 && heads <= qkv.dim(-1) && heads % kv_heads == 0,
           "%lld heads cannot share %lld key/value heads", (long long)heads, (long long)kv_heads);
    c.need(qkv.dim(-1) % (heads + 2 * kv_heads) == 0,
           "the last size %lld of qkv does not divide into %lld query and 2 x %lld key/value heads",
           (long long)qkv.dim(-1), (long long)heads, (long long)kv_heads);
    return {heads, kv_heads, qkv.dim(-1) / (heads + 2 * kv_heads)};
}

nn_attention_params base_params(const Call& c, const Tensor& qkv, const Heads& h) {
    nn_attention_params p{};
    p.heads = h.heads, p.kv_heads = h.kv_heads, p.head_dim = h.head_dim;
    p.causal = c.flag("causal");
    p.scale = c.given("scale") ? c.number("scale") : 1 / std::sqrt(double(h.head_dim));
    p.dropout = c.number("dropout");
    c.need(p.dropout >= 0 && p.dropout < 1, "dropout is %g; it must be in [0, 1)", p.dropout);
    p.seed = c.given("seed") ? uint64_t(c.integer("seed")) : random_seed();
    p.total_len = qkv.dim(1);
    p.backend = settings().attention;
    return p;
}

// A mask whose seed was given stays the same whenever a recording runs again.
std::vector<Patch> counter_patch(const Call& c, const nn_attention_params& p) {
    if (p.dropout == 0 || c.given("seed")) return {};
    return {{Patch::random_key, int32_t(offsetof(nn_attention_params, seed)), 0}};
}

void place(nn_attention_params& p, const Block& q, const Block& k) {
    p.batch = q.extent[0], p.batch_start = q.start[0];
    p.q_len = q.extent[1], p.q_start = q.start[1];
    p.k_len = k.extent[1], p.k_start = k.start[1];
}

// Multiply-adds that causal masking leaves, as 2 FLOPs each, for one product over head_dim.
double pair_flops(const nn_attention_params& p) {
    double pairs = double(p.q_len) * double(p.k_len);
    if (p.causal && p.q_start == p.k_start) pairs = double(p.q_len) * double(p.q_len + 1) / 2;
    return 2 * pairs * double(p.batch * p.heads * p.head_dim);
}

// Key tiles that a query tile sees.
int64_t key_tiles(const Tensor& qkv, const nn_attention_params& p, int64_t query_tile) {
    return p.causal ? query_tile + 1 : qkv.grid().tiles(1);
}

const Attribute heads_attribute = {"heads", "int", "", "query heads"};
const Attribute kv_heads_attribute = {"kv_heads", "int", "nil",
                                      "key/value heads, when fewer (grouped queries)"};
const Attribute causal_attribute = {"causal", "bool", "true", "position t sees positions up to t"};
const Attribute scale_attribute = {"scale", "number", "nil",
                                   "of the scores; 1 / sqrt(head_dim) when not given"};
const Attribute dropout_attribute = {"dropout", "number", "0",
                                     "probability with which a weight is dropped"};
const Attribute counter_attribute = {"counter", "int", "nil",
                                     "with seed: draws the dropout mask of an earlier call again"};
const Attribute seed_attribute = {"seed", "int", "nil", "the session's when not given"};

const OpRegistrar attention = Op{
    .name = "attention",
    .doc =
        "attention(qkv, {heads, kv_heads, causal=true, scale, dropout=0, counter, seed}) -> o, "
        "stats\n"
        "softmax(q k^T scale + mask) v per head, for qkv (batch, time, (heads + 2 kv_heads) "
        "head_dim) that holds all q, "
        "then all k, then all v side by side. o is (batch, time, heads head_dim). The time x time "
        "matrix is never stored; "
        "stats (batch, heads, time, 2) keeps each row's log-sum-exp for the backward pass."
        " Error: a last axis that (heads + 2 kv_heads) does not divide."
        "\n    local qkv = nn.randn(2, 8, 3 * 16)   -- 2 sequences of 8 tokens, 4 heads of 4"
        "\n    local o = nn.attention(qkv, {heads = 4})"
        "\n    o:dims()  --> 2, 8, 16",
    .inputs = {"qkv"},
    .attributes = {heads_attribute, kv_heads_attribute, causal_attribute, scale_attribute,
                   dropout_attribute, counter_attribute, seed_attribute},
    .samples = {"{qkv={2,7,24}, heads=2}", "{qkv={1,9,16}, heads=2, kv_heads=1}",
                "{qkv={2,6,12}, heads=1, causal=false}", "{qkv={2,7,24}, heads=2, dropout=0.3}"},
    .run =
        [](Call& c) {
            c.need_float("qkv");
            const Heads h = check_heads(c, c.in("qkv"));
            const Tensor qkv = whole_axis(c.in("qkv"), 2);
            nn_attention_params p = base_params(c, qkv, h);
            if (p.dropout > 0)
                p.counter =
                    c.given("counter") ? uint64_t(c.integer("counter")) : sink().next_random();
            Grid grid = qkv.grid(), stats_grid = qkv.grid();
            grid.axes[2] = whole(h.heads * h.head_dim);
            stats_grid.axes = {qkv.grid().axes[0], whole(h.heads), qkv.grid().axes[1], whole(2)};
            const Dtype sums = accumulator(qkv.dtype());
            const int64_t columns = qkv.grid().tiles(1);
            Tensor o(grid, qkv.dtype()), stats(stats_grid, sums), acc;
            if (columns > 1) acc = Tensor(grid, sums);
            for (int64_t i = 0; i < qkv.tiles(); ++i) {
                const int64_t row = i / columns * columns, keys = key_tiles(qkv, p, i % columns);
                for (int64_t k = 0; k < keys; ++k) {
                    place(p, qkv.block(i), qkv.block(row + k));
                    p.first = k == 0, p.last = k == keys - 1;
                    task("attention", qkv.dtype())
                        .use(p.last ? writes(o.tile(i)) : absent())
                        .use(!acc      ? absent()
                             : p.first ? writes(acc.tile(i))
                                       : updates(acc.tile(i)))
                        .use(p.first ? writes(stats.tile(i)) : updates(stats.tile(i)))
                        .use({reads(qkv.tile(i)), reads(qkv.tile(row + k))})
                        .params(p)
                        .patch(counter_patch(c, p))
                        .flops(2 * pair_flops(p))
                        .tile(i, o.block(i).extent)
                        .emit();
                }
            }
            c.result(o);
            c.result(stats);
        },
    .category = "layers",
};

const OpRegistrar attention_backward = Op{
    .name = "attention_backward",
    .doc =
        "attention_backward(do, qkv, o, stats, {heads, kv_heads, causal=true, scale, dropout=0, "
        "counter, seed}) -> dqkv\n"
        "The gradient of attention; weights are computed again from stats."
        " dqkv has the shape of qkv."
        "\n    local qkv = nn.randn(1, 3, 12)"
        "\n    local o, stats = nn.attention(qkv, {heads = 2})"
        "\n    nn.attention_backward(nn.ones(1, 3, 4), qkv, o, stats, {heads = 2}):dims()  --> 1, "
        "3, 12",
    .inputs = {"do", "qkv", "o", "stats"},
    .attributes = {heads_attribute, kv_heads_attribute, causal_attribute, scale_attribute,
                   dropout_attribute, counter_attribute, seed_attribute},
    .samples = {},
    .no_gradient = "is itself a gradient",
    .run =
        [](Call& c) {
            c.need_float("qkv");
            const Heads h = check_heads(c, c.in("qkv"));
            const Tensor qkv = whole_axis(c.in("qkv"), 2);
            const int64_t batch = qkv.dim(0), time = qkv.dim(1);
            for (const char* name : {"do", "o"}) {
                c.need_shape(name, {batch, time, h.heads * h.head_dim});
                c.need_dtype(name, qkv.dtype());
            }
            c.need_shape("stats", {batch, h.heads, time, 2});
            c.need_dtype("stats", accumulator(qkv.dtype()));
            nn_attention_params p = base_params(c, qkv, h);
            if (p.dropout > 0) p.counter = uint64_t(c.integer("counter"));
            Grid grid = qkv.grid(), stats_grid = qkv.grid();
            grid.axes[2] = whole(h.heads * h.head_dim);
            stats_grid.axes = {qkv.grid().axes[0], whole(h.heads), qkv.grid().axes[1], whole(2)};
            const Tensor o = retile(c.in("o"), grid), dout = retile(c.in("do"), grid);
            const Tensor stats = retile(c.in("stats"), stats_grid);
            Tensor dqkv(qkv.grid(), qkv.dtype());
            const int64_t columns = qkv.grid().tiles(1);
            for (int64_t i = 0; i < qkv.tiles(); ++i) {
                const int64_t row = i / columns * columns, keys = key_tiles(qkv, p, i % columns);
                for (int64_t k = 0; k < keys; ++k) {
                    const int64_t j = row + k;
                    place(p, qkv.block(i), qkv.block(j));
                    // Tile i is first written by its pair with key tile 0, which sets dq only; the
                    // k and v part of tile j is first written by the first query tile that sees it.
                    p.first_q = k == 0, p.first_kv = p.causal ? i == j : i == row;
                    const bool fresh_q = k == 0 && (p.causal || i == row),
                               fresh_kv = !p.causal && i == row;
                    task("attention_backward", qkv.dtype())
                        .use(fresh_q ? writes(dqkv.tile(i)) : updates(dqkv.tile(i)))
                        .use(fresh_kv || (i == j && fresh_q) ? writes(dqkv.tile(j))
                                                             : updates(dqkv.tile(j)))
                        .use({reads(qkv.tile(i)), reads(qkv.tile(j)), reads(o.tile(i)),
                              reads(dout.tile(i))})
                        .use(reads(stats.tile(i)))
                        .params(p)
                        .patch(counter_patch(c, p))
                        .flops(5 * pair_flops(p))
                        .tile(i, o.block(i).extent)
                        .emit();
                }
            }
            c.result(dqkv);
        },
    .category = "gradients",
};

}  // namespace
}  // namespace nn
