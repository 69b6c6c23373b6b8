// Attention over packed queries, keys and values, with an online softmax (Dao et al. 2022, arXiv
// 2205.14135). Each pair of a query tile and a key tile has a task, except pairs wholly above the
// diagonal.
#include <cmath>

#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

// Checks the arguments; returns the parameters that all tasks of a call share.
nn_attention_params base_params(const Call& c) {
    const Tensor& qkv = c.in("qkv");
    c.need_float("qkv");
    c.need(qkv.rank() == 3, "qkv is {}; it must be (batch, time, (heads + 2 kv_heads) * head_dim)",
           qkv);
    nn_attention_params p{};
    p.heads = c.integer("heads");
    p.kv_heads = c.given("kv_heads") ? c.integer("kv_heads") : p.heads;
    c.need(p.heads >= 1 && p.kv_heads >= 1 && p.heads <= qkv.dim(-1) && p.heads % p.kv_heads == 0,
           "{} heads cannot share {} key/value heads", p.heads, p.kv_heads);
    c.need(qkv.dim(-1) % (p.heads + 2 * p.kv_heads) == 0,
           "the last size {} of qkv does not divide into {} query and 2 x {} key/value heads",
           qkv.dim(-1), p.heads, p.kv_heads);
    p.head_dim = qkv.dim(-1) / (p.heads + 2 * p.kv_heads);
    p.causal = c.flag("causal"), p.window = c.integer("window");
    c.need(p.window >= 0 && (p.window == 0 || p.causal),
           "window is {}; at least 1, with causal, or 0 is needed", p.window);
    if (p.window >= qkv.dim(1)) p.window = 0;
    p.scale = c.given("scale") ? c.number("scale") : 1 / std::sqrt(double(p.head_dim));
    p.dropout = c.number("dropout");
    c.need(p.dropout >= 0 && p.dropout < 1, "dropout is {}; it must be in [0, 1)", p.dropout);
    p.seed = c.given("seed") ? uint64_t(c.integer("seed")) : random_seed();
    p.total_len = qkv.dim(1);
    c.need_shape("mask", {qkv.dim(0), qkv.dim(1)});
    c.need_ids("mask");
    if (c.in("mask")) p.mask_dtype = int32_t(c.in("mask").dtype());
    p.backend = settings().attention;
    return p;
}

// o and stats are cut as qkv is.
Grid output_grid(const Tensor& qkv, const nn_attention_params& p) {
    return qkv.grid().with(2, whole(p.heads * p.head_dim));
}
Grid stats_grid(const Tensor& qkv, const nn_attention_params& p) {
    return Grid({qkv.grid().axes[0], whole(p.heads), qkv.grid().axes[1], whole(2)});
}

// The mask, if given, cut as qkv is.
Tensor mask_for(const Call& c, const Tensor& qkv) {
    const Grid grid({qkv.grid().axes[0], qkv.grid().axes[1]});
    return c.in("mask") ? retile(c.in("mask"), grid) : Tensor();
}

// With a given seed, every replay uses the same mask.
std::vector<Patch> counter_patch(const Call& c, const nn_attention_params& p) {
    if (p.dropout == 0 || c.given("seed")) return {};
    return {{Patch::random_key, int32_t(offsetof(nn_attention_params, seed)), 0}};
}

// Calls emit(i, j, first) for every pair of a query tile i and a key tile j that it sees, with the
// positions of both in p. They are tiles of qkv; first is the first key tile that i sees.
template <class Emit> void for_each_pair(const Tensor& qkv, nn_attention_params& p, Emit emit) {
    const int64_t columns = qkv.grid().tiles(1);
    for (int64_t i = 0; i < qkv.tiles(); ++i) {
        const int64_t row = i / columns * columns, end = p.causal ? i + 1 : row + columns;
        const Block queries = qkv.block(i);
        int64_t first = row;
        const auto end_of = [&](int64_t j) {
            return qkv.block(j).start[1] + qkv.block(j).extent[1];
        };
        while (p.window && end_of(first) <= queries.start[1] + 1 - p.window) ++first;
        for (int64_t j = first; j < end; ++j) {
            const Block seen = qkv.block(j);
            p.batch = queries.extent[0], p.batch_start = queries.start[0];
            p.q_len = queries.extent[1], p.q_start = queries.start[1];
            p.k_len = seen.extent[1], p.k_start = seen.start[1];
            emit(i, j, first);
        }
    }
}

// FLOPs of one product over head_dim, without the elements that masks drop.
double pair_flops(const nn_attention_params& p) {
    double pairs = double(p.q_len) * double(p.k_len);
    if (p.causal && p.q_start == p.k_start) pairs = double(p.q_len) * double(p.q_len + 1) / 2;
    if (p.window) {
        pairs = 0;
        for (int64_t i = p.q_start; i < p.q_start + p.q_len; ++i)
            pairs += double(std::max<int64_t>(
                0, std::min(i + 1, p.k_start + p.k_len) - std::max(i + 1 - p.window, p.k_start)));
    }
    return 2 * pairs * double(p.batch * p.heads * p.head_dim);
}

void run_attention(Call& c) {
    nn_attention_params p = base_params(c);
    const Tensor qkv = whole_axis(c.in("qkv"), 2);
    if (p.dropout > 0)
        p.counter = c.given("counter") ? uint64_t(c.integer("counter")) : sink().next_random();
    const Grid grid = output_grid(qkv, p);
    const Dtype sums = accumulator(qkv.dtype());
    const Tensor o(grid, qkv.dtype()), stats(stats_grid(qkv, p), sums);
    const int64_t columns = qkv.grid().tiles(1);
    const Tensor acc = columns > 1 ? Tensor(grid, sums) : Tensor(), mask = mask_for(c, qkv);
    for_each_pair(qkv, p, [&](int64_t i, int64_t j, int64_t first) {
        p.first = j == first, p.last = j == (p.causal ? i : first + columns - 1);
        task("attention", qkv.dtype())
            .use({p.last ? writes(o, i) : absent(), adds(acc, i, p.first), adds(stats, i, p.first)})
            .use({reads(qkv, i), reads(qkv, j), reads(mask, j)})
            .params(p)
            .patch(counter_patch(c, p))
            .flops(2 * pair_flops(p))
            .emit(i, o.block(i).extent);
    });
    c.results = {o, stats};
}

const std::vector<Attribute> attributes = {
    {"heads", "int", "", "query heads"},
    {"kv_heads", "int", "nil", "key/value heads, if fewer (grouped queries)"},
    {"causal", "bool", "true", "position t sees positions up to t"},
    {"window", "int", "0", "position t sees the newest `window` positions only; 0: all"},
    {"scale", "number", "nil", "of the scores; 1 / sqrt(head_dim) by default"},
    {"dropout", "number", "0", "probability with which a weight is dropped"},
    {"counter", "int", "nil", "with seed: the dropout mask of an earlier call"},
    {"seed", "int", "nil", "the session's by default"},
};

const OpRegistrar attention = Op{
    .doc = R"(attention(qkv, mask?) -> o, stats~
softmax(q k^T scale + mask) v per head, for qkv (batch, time, (heads + 2 kv_heads) head_dim) that
holds all q, then all k, then all v side by side. o is (batch, time, heads head_dim). The time x
time matrix is never stored; stats (batch, heads, time, 2) keeps each row's log-sum-exp for the
backward pass. No position sees one whose mask (batch, time) i32 or i64 is 0, such as padding; a
position that sees none gets zeros. Error: a last axis that (heads + 2 kv_heads) does not divide.
    local qkv = nn.randn(2, 8, 3 * 16)   -- 2 sequences of 8 tokens, 4 heads of 4
    local o = nn.attention(qkv, {heads = 4})
    o:dims()  --> 2, 8, 16)",
    .attributes = attributes,
    .samples = {"{qkv={2,7,24}, heads=2}", "{qkv={1,9,16}, heads=2, kv_heads=1}",
                "{qkv={2,6,12}, heads=1, causal=false}",
                "{qkv={1,9,16}, heads=2, kv_heads=1, window=3}",
                "{qkv={2,7,24}, heads=2, dropout=0.3}",
                "{qkv={3,7,12}, mask={3,7,below=2}, heads=2, causal=false}"},
    .mask = "dropout",
    .run = run_attention,
    .category = "layers",
};

void run_attention_backward(Call& c) {
    nn_attention_params p = base_params(c);
    const Tensor qkv = whole_axis(c.in("qkv"), 2);
    const Grid grid = output_grid(qkv, p), stats_cut = stats_grid(qkv, p);
    for (const char* name : {"do", "o"}) c.need_tensor(name, grid.shape(), qkv.dtype());
    c.need_tensor("stats", stats_cut.shape(), accumulator(qkv.dtype()));
    if (p.dropout > 0) p.counter = uint64_t(c.integer("counter"));
    const Tensor o = retile(c.in("o"), grid), dout = retile(c.in("do"), grid);
    const Tensor stats = retile(c.in("stats"), stats_cut), dqkv(qkv.grid(), qkv.dtype()),
                 mask = mask_for(c, qkv);
    for_each_pair(qkv, p, [&](int64_t i, int64_t j, int64_t first) {
        // Tile i is first written by its pair with its first key tile, which sets dq only; the k
        // and v part of tile j is first written by the first query tile that sees it.
        p.first_q = j == first, p.first_kv = p.causal ? i == j : i == first;
        const bool fresh_q = p.first_q && (p.causal || i == first);
        const bool fresh_kv = !p.causal && i == first;
        task("attention_backward", qkv.dtype())
            .use({adds(dqkv, i, fresh_q), adds(dqkv, j, fresh_kv || (i == j && fresh_q))})
            .use({reads(qkv, i), reads(qkv, j), reads(o, i), reads(dout, i), reads(stats, i),
                  reads(mask, j)})
            .params(p)
            .patch(counter_patch(c, p))
            .flops(5 * pair_flops(p))
            .emit(i, o.block(i).extent);
    });
    c.result(dqkv);
}

const OpRegistrar attention_backward = Op{
    .doc = R"(attention_backward(do, qkv, o, stats, mask?) -> dqkv
The gradient of attention; weights are computed again from stats. dqkv has the shape of qkv.
    local qkv = nn.randn(1, 3, 12)
    local o, stats = nn.attention(qkv, {heads = 2})
    nn.attention_backward(nn.ones(1, 3, 4), qkv, o, stats, {heads = 2}):dims()  --> 1, 3, 12)",
    .attributes = attributes,
    .gradient_of = "attention",
    .gradient_in = "qkv",
    .run = run_attention_backward,
};

}  // namespace
}  // namespace nn
