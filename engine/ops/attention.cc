// Attention over packed queries, keys and values, with an online softmax (Dao et al. 2022, arXiv
// 2205.14135). Each pair of a query tile and a key tile has a task, except pairs wholly above the
// diagonal.
#include "kernels/params/attention.h"

#include <cmath>

#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/ops/relative_bias.h"
#include "kernels/params/gelu.h"

namespace nn {
namespace {

// The operands of a call, cut so that a tile of queries and a tile of keys have the same sequences.
// Queries and keys are both in qkv, unless the call is cross-attention.
struct Operands {
    Tensor q, kv, mask, bias;  // mask (batch, keys), or none; bias (buckets, heads), or none
};

// cuDNN compiles kernels for each length of a prompt, which takes 0.3 s; ours compute any length,
// up to three times slower. Only for long prompts does compiling take less time.
bool is_rare_length(int64_t tokens) {
    constexpr int64_t multiple = 64, long_prompt = 16384;
    return tokens % multiple != 0 && tokens < long_prompt;
}

// The parameters that all tasks of a call share. width: of a row that packs queries, keys and
// values.
nn_attention_params base_params(const Call& c, int64_t width) {
    nn_attention_params p{};
    p.heads = c.integer("heads");
    p.kv_heads = c.given("kv_heads") ? c.integer("kv_heads") : p.heads;
    c.need(p.heads >= 1 && p.kv_heads >= 1 && p.heads <= width && p.heads % p.kv_heads == 0,
           "{} heads cannot share {} key/value heads", p.heads, p.kv_heads);
    c.need(width % (p.heads + 2 * p.kv_heads) == 0,
           "the last size {} does not divide into {} query and 2 x {} key/value heads", width,
           p.heads, p.kv_heads);
    p.head_dim = width / (p.heads + 2 * p.kv_heads);
    p.scale = c.given("scale") ? c.number("scale") : 1 / std::sqrt(double(p.head_dim));
    p.dropout = c.number("dropout");
    c.need(p.dropout >= 0 && p.dropout < 1, "dropout is {}; it must be in [0, 1)", p.dropout);
    p.seed = c.given("seed") ? uint64_t(c.integer("seed")) : random_seed();
    p.backend = settings().attention;
    return p;
}

// The mask, if given, cut as kv is.
Tensor mask_for(const Call& c, const Tensor& kv, nn_attention_params& p) {
    c.need_shape("mask", {kv.dim(0), kv.dim(1)});
    c.need_ids("mask");
    if (!c.in("mask")) return {};
    p.mask_dtype = int32_t(c.in("mask").dtype());
    return retile(c.in("mask"), Grid({kv.grid().axes[0], kv.grid().axes[1]}));
}

Operands packed_operands(const Call& c, nn_attention_params& p) {
    const Tensor& qkv = c.in("qkv");
    c.need_float("qkv");
    c.need(qkv.rank() == 3, "qkv is {}; it must be (batch, time, (heads + 2 kv_heads) * head_dim)",
           qkv);
    p = base_params(c, qkv.dim(-1));
    p.causal = c.flag("causal"), p.window = c.integer("window");
    c.need(p.window >= 0 && (p.window == 0 || p.causal),
           "window is {}; at least 1, with causal, or 0 is needed", p.window);
    if (p.window >= qkv.dim(1)) p.window = 0;
    if (c.flag("prompt") && p.backend == nn_attention_auto && is_rare_length(qkv.dim(1)))
        p.backend = nn_attention_nnlua;
    p.total_len = qkv.dim(1);
    const Tensor all = whole_axis(qkv, 2);
    return {all, all, mask_for(c, all, p), relative_bias(c, p, p.causal != 0)};
}

Operands cross_operands(const Call& c, nn_attention_params& p) {
    const Tensor &q = c.in("q"), &kv = c.in("kv");
    c.need_float("q");
    c.need_dtype("kv", q.dtype());
    c.need(q.rank() == 3 && kv.rank() == 3 && q.dim(0) == kv.dim(0),
           "q is {}, kv is {}; they must be (batch, queries, heads * head_dim) and (batch, keys, 2 "
           "kv_heads * head_dim)",
           q, kv);
    p = base_params(c, q.dim(2) + kv.dim(2));
    c.need(q.dim(2) == p.heads * p.head_dim,
           "q is {}, kv is {}, which are not {} query and 2 x {} "
           "key/value heads of one size",
           q, kv, p.heads, p.kv_heads);
    p.cross = 1;
    p.total_len = std::max(q.dim(1), kv.dim(1));
    const Tensor queries = whole_axis(q, 2);
    const Tensor keys = recut(whole_axis(kv, 2), 0, queries.grid().axes[0]);
    return {queries, keys, mask_for(c, keys, p), {}};
}

// o and stats are cut as the queries are.
Grid output_grid(const Tensor& q, const nn_attention_params& p) {
    return q.grid().with(2, whole(p.heads * p.head_dim));
}
Grid stats_grid(const Tensor& q, const nn_attention_params& p) {
    return Grid({q.grid().axes[0], whole(p.heads), q.grid().axes[1], whole(2)});
}

// With a given seed, every replay uses the same mask.
std::vector<Patch> counter_patch(const Call& c, const nn_attention_params& p) {
    if (p.dropout == 0 || c.given("seed")) return {};
    return {{Patch::random_key, int32_t(offsetof(nn_attention_params, seed)), 0}};
}

// A tile i of the queries and a tile j of the keys that it sees; first and last: the first and the
// last of these. first_row: the first query tile of the sequences that sees key tile j.
struct Pair {
    int64_t i, j, first, last, first_row;
};

// Calls emit(pair) for every pair, with the positions of both tiles in p.
template <class Emit> void for_each_pair(const Operands& in, nn_attention_params& p, Emit emit) {
    const int64_t rows = in.q.grid().tiles(1), columns = in.kv.grid().tiles(1);
    for (int64_t i = 0; i < in.q.tiles(); ++i) {
        const Block queries = in.q.block(i);
        Pair at{i, 0, i / rows * columns, 0, 0};
        at.last = p.causal ? at.first + i % rows : at.first + columns - 1;
        const auto end_of = [&](int64_t j) {
            return in.kv.block(j).start[1] + in.kv.block(j).extent[1];
        };
        while (p.window && end_of(at.first) <= queries.start[1] + 1 - p.window) ++at.first;
        for (at.j = at.first; at.j <= at.last; ++at.j) {
            const Block seen = in.kv.block(at.j);
            at.first_row = p.causal ? at.j : i / rows * rows;
            p.batch = queries.extent[0], p.batch_start = queries.start[0];
            p.q_len = queries.extent[1], p.q_start = queries.start[1];
            p.k_len = seen.extent[1], p.k_start = seen.start[1];
            emit(at);
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

void attend(Call& c, const Operands& in, nn_attention_params p) {
    if (p.dropout > 0)
        p.counter = c.given("counter") ? uint64_t(c.integer("counter")) : sink().next_random();
    const Grid grid = output_grid(in.q, p);
    const Dtype dtype = in.q.dtype(), sums = accumulator(dtype);
    const Tensor o(grid, dtype), stats(stats_grid(in.q, p), sums);
    const Tensor acc = in.kv.grid().tiles(1) > 1 ? Tensor(grid, sums) : Tensor();
    for_each_pair(in, p, [&](const Pair& at) {
        p.first = at.j == at.first, p.last = at.j == at.last;
        task("attention", dtype)
            .use({p.last ? writes(o, at.i) : absent(), adds(acc, at.i, p.first)})
            .use({adds(stats, at.i, p.first), reads(in.q, at.i), reads(in.kv, at.j)})
            .use({reads(in.mask, at.j), reads(in.bias, 0)})
            .params(p)
            .patch(counter_patch(c, p))
            .flops(2 * pair_flops(p))
            .emit(at.i, o.block(at.i).extent);
    });
    c.results = {o, stats};
}

void run_attention(Call& c) {
    nn_attention_params p;
    const Operands in = packed_operands(c, p);
    attend(c, in, p);
}

void run_cross_attention(Call& c) {
    nn_attention_params p;
    const Operands in = cross_operands(c, p);
    attend(c, in, p);
}

const Attribute heads = {"heads", "int", "", "query heads"},
                kv_heads = {"kv_heads", "int", "nil",
                            "key/value heads, if fewer (grouped queries)"},
                scale = {"scale", "number", "nil", "of the scores; 1 / sqrt(head_dim) by default"},
                dropout = {"dropout", "number", "0", "probability with which a weight is dropped"},
                counter = {"counter", "int", "nil",
                           "with seed: the dropout mask of an earlier call"},
                seed = {"seed", "int", "nil", "the session's by default"};
const std::vector<Attribute> attributes = {
    heads,
    kv_heads,
    {"causal", "bool", "true", "position t sees positions up to t"},
    {"window", "int", "0", "position t sees the newest `window` positions only; 0: all"},
    scale,
    dropout,
    counter,
    seed,
    {"max_distance", "int", "128", "of bias: larger distances share the last bucket"},
    {"prompt", "bool", "false",
     "qkv is of a prompt: GPUs use cuDNN only for multiples of 64 tokens"},
};
const std::vector<Attribute> cross_attributes = {heads, kv_heads, scale, dropout, counter, seed};

const OpRegistrar attention = Op{
    .doc = R"(attention(qkv, mask?, bias?) -> o, stats~
softmax(q k^T scale + mask) v per head, for qkv (batch, time, (heads + 2 kv_heads) head_dim) that
holds all q, then all k, then all v side by side. o is (batch, time, heads head_dim). The time x
time matrix is never stored; stats (batch, heads, time, 2) keeps each row's log-sum-exp for the
backward pass. No position sees one whose mask (batch, time) i32 or i64 is 0, such as padding; a
position that sees none gets zeros. bias (buckets, heads) is added to the scores by the distance of
the positions, in the buckets of T5 (Raffel et al. 2019). If causal, all buckets are for earlier
tokens; else half of them are for later tokens. Error: a last axis that (heads + 2 kv_heads) does not divide.
    local qkv = nn.randn(2, 8, 3 * 16)   -- 2 sequences of 8 tokens, 4 heads of 4
    local o = nn.attention(qkv, {heads = 4})
    o:dims()  --> 2, 8, 16)",
    .attributes = attributes,
    .samples =
        {"{qkv={2,7,24}, heads=2}", "{qkv={1,9,16}, heads=2, kv_heads=1}",
         "{qkv={2,6,12}, heads=1, causal=false}", "{qkv={1,9,16}, heads=2, kv_heads=1, window=3}",
         "{qkv={2,7,24}, heads=2, dropout=0.3}",
         "{qkv={3,7,12}, mask={3,7,below=2}, heads=2, causal=false}",
         "{qkv={2,9,12}, bias={4,2}, heads=2, max_distance=5}",
         "{qkv={2,9,12}, mask={2,9,below=2}, bias={8,2}, heads=2, causal=false, max_distance=6}"},
    .mask = "dropout",
    .run = run_attention,
    .category = "layers",
};

const OpRegistrar cross_attention = Op{
    .doc = R"(cross_attention(q, kv, mask?) -> o, stats~
softmax(q k^T scale + mask) v per head, as attention, for queries q (batch, queries, heads head_dim)
of one sequence and kv (batch, keys, 2 kv_heads head_dim), all keys and then all values of another
one. mask (batch, keys) is 0 for keys that no query sees. Error: sizes that do not fit.
    local q, kv = nn.randn(2, 3, 16), nn.randn(2, 8, 2 * 16)
    local o = nn.cross_attention(q, kv, {heads = 4})
    o:dims()  --> 2, 3, 16)",
    .attributes = cross_attributes,
    .samples = {"{q={2,5,8}, kv={2,7,16}, heads=2}", "{q={2,9,8}, kv={2,4,4}, heads=4, kv_heads=1}",
                "{q={3,4,6}, kv={3,7,12}, mask={3,7,below=2}, heads=2}",
                "{q={1,5,8}, kv={1,7,16}, heads=2, dropout=0.3}"},
    .mask = "dropout",
    .run = run_cross_attention,
    .category = "layers",
    .kernels = {"attention"},
};

// The gradients of q and kv, which are one tensor in a packed call, and of the bias.
struct Gradients {
    Tensor q, kv, bias;
};

// dbias (buckets, heads) = the sum of the rows of partial.
Tensor sum_partials(const Tensor& partial, const nn_attention_params& p) {
    const Tensor sum(Grid::whole({p.buckets * p.heads}), partial.dtype());
    for (int64_t i = 0; i < partial.tiles(); ++i)
        task("column_sum", partial.dtype())
            .use({adds(sum, 0, i == 0), reads(partial, i)})
            .params(nn_column_sum_params{1, p.buckets * p.heads, i == 0})
            .emit(i, {p.buckets * p.heads}, 1);
    return reshape(sum, {p.buckets, p.heads});
}

Gradients attend_backward(Call& c, const Operands& in, nn_attention_params p) {
    const Dtype dtype = in.q.dtype(), sums = accumulator(dtype);
    const Grid grid = output_grid(in.q, p), stats_cut = stats_grid(in.q, p);
    for (const char* name : {"do", "o"}) c.need_tensor(name, grid.shape(), dtype);
    c.need_tensor("stats", stats_cut.shape(), sums);
    if (p.dropout > 0) p.counter = uint64_t(c.integer("counter"));
    const Tensor o = retile(c.in("o"), grid), dout = retile(c.in("do"), grid),
                 stats = retile(c.in("stats"), stats_cut);
    const Tensor dq(in.q.grid(), dtype), dkv = p.cross ? Tensor(in.kv.grid(), dtype) : dq;
    Tensor dbias;  // of each tile of queries
    if (in.bias)
        dbias = Tensor(Grid({cut_every(in.q.tiles(), 1), whole(p.buckets * p.heads)}), sums);
    for_each_pair(in, p, [&](const Pair& at) {
        // A tile of qkv is first written by its pair with its first key tile, which sets dq only;
        // the k and v part of tile j is first written by the first query tile that sees it.
        const int64_t i = at.i, j = at.j;
        p.first_q = j == at.first, p.first_kv = i == at.first_row;
        const bool fresh_q = p.first_q && (p.cross || p.causal || i == at.first_row);
        const bool fresh_kv = p.first_kv && (p.cross || !p.causal);
        task("attention_backward", dtype)
            .use({adds(dq, i, fresh_q), adds(dkv, j, fresh_kv || (!p.cross && i == j && fresh_q))})
            .use({reads(in.q, i), reads(in.kv, j), reads(o, i), reads(dout, i), reads(stats, i)})
            .use({reads(in.mask, j), reads(in.bias, 0), adds(dbias, i, p.first_q)})
            .params(p)
            .patch(counter_patch(c, p))
            .flops(5 * pair_flops(p))
            .emit(i, o.block(i).extent);
    });
    return {dq, dkv, dbias ? cast(sum_partials(dbias, p), dtype) : Tensor()};
}

void run_attention_backward(Call& c) {
    nn_attention_params p;
    const Operands in = packed_operands(c, p);
    const Gradients d = attend_backward(c, in, p);
    c.results = {d.q, d.bias};
}

void run_cross_attention_backward(Call& c) {
    nn_attention_params p;
    const Operands in = cross_operands(c, p);
    const Gradients d = attend_backward(c, in, p);
    c.results = {d.q, d.kv};
}

const OpRegistrar attention_backward = Op{
    .doc = R"(attention_backward(do, qkv, o, stats, mask?, bias?) -> dqkv, dbias?
The gradients of attention; weights are computed again from stats. dqkv has the shape of qkv, dbias
that of bias.
    local qkv = nn.randn(1, 3, 12)
    local o, stats = nn.attention(qkv, {heads = 2})
    (nn.attention_backward(nn.ones(1, 3, 4), qkv, o, stats, {heads = 2})):dims()  --> 1, 3, 12)",
    .attributes = attributes,
    .gradient_of = "attention",
    .run = run_attention_backward,
    .kernels = {"attention_backward", "column_sum"},
};

const OpRegistrar cross_attention_backward = Op{
    .doc = R"(cross_attention_backward(do, q, kv, o, stats, mask?) -> dq, dkv
The gradients of cross_attention, as attention_backward.
    local q, kv = nn.randn(1, 3, 4), nn.randn(1, 5, 8)
    local o, stats = nn.cross_attention(q, kv, {heads = 2})
    local dq, dkv = nn.cross_attention_backward(nn.ones(1, 3, 4), q, kv, o, stats, {heads = 2})
    dkv:dims()  --> 1, 5, 8)",
    .attributes = cross_attributes,
    .gradient_of = "cross_attention",
    .run = run_cross_attention_backward,
    .kernels = {"attention_backward"},
};

}  // namespace
}  // namespace nn
