// Token and position embedding, over vocabulary tiles, forward and backward.
#include "engine/base/error.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

void check_ids(const Call& c, const char* name) {
    const Tensor& ids = c.in(name);
    c.need(ids.dtype() == Dtype::i32 || ids.dtype() == Dtype::i64,
           "%s is %s; token ids are i32 or i64", name, dtype_name(ids.dtype()));
    c.need(ids.rank() >= 1, "%s needs at least one axis, (..., time)", name);
}

// Ids cut so that every tile is (batch, time): whole sequences side by side, or a part of one.
nn_embedding_params params_of(const Tensor& ids, int64_t tile, int64_t vocab, int64_t context,
                              int64_t cols, int64_t start) {
    const Block block = ids.block(tile);
    nn_embedding_params p{};
    p.len = block.extent.back();
    p.batch = block.count() / p.len;
    p.start = start + block.start.back();
    p.vocab = vocab, p.context = context, p.cols = cols;
    p.ids_dtype = int32_t(ids.dtype());
    return p;
}

void check_tables(const Call& c) {
    const Tensor &ids = c.in("ids"), &tokens = c.in("tokens"), &positions = c.in("positions");
    c.need_float("tokens");
    c.need(tokens.rank() == 2, "tokens is %s; it must be (vocab, embd)",
           to_string(tokens.shape()).c_str());
    const int64_t start = c.integer("start");
    c.need(start >= 0 && start <= max_count, "start is %lld", (long long)start);
    if (!positions) return;
    c.need_dtype("positions", tokens.dtype());
    c.need(positions.rank() == 2 && positions.dim(1) == tokens.dim(1),
           "positions is %s, tokens is %s", to_string(positions.shape()).c_str(),
           to_string(tokens.shape()).c_str());
    c.need(start <= positions.dim(0) - ids.dim(-1),
           "%lld tokens from position %lld on; the context has %lld positions",
           (long long)ids.dim(-1), (long long)start, (long long)positions.dim(0));
}

Tensor whole_columns(const Tensor& table) { return whole_axis(table, 1); }

const OpRegistrar embedding = Op{
    .name = "embedding",
    .doc =
        "embedding(ids, tokens, positions, {start=0}) -> y\n"
        "y[..., t, :] = tokens[ids[..., t]] + positions[start + t] (0-based) for ids (..., time) "
        "of i32 or i64, tokens "
        "(vocab, embd), positions (context, embd) or none. An id outside the vocabulary is an "
        "error."
        "\n    local ids, rows = nn.tensor({2, 0}, {dtype = \"i32\"}), nn.tensor{{1, 2}, {3, 4}, "
        "{5, 6}}"
        "\n    (nn.embedding(ids, rows))  --> {{5, 6}, {1, 2}}",
    .inputs = {"ids", "tokens", "positions?"},
    .attributes = {{"start", "int", "0", "position of the first column of ids"}},
    .samples = {"{ids={3,7,below=11}, tokens={11,5}, positions={9,5}}",
                "{ids={2,4,below=11}, tokens={11,6}}"},
    .run =
        [](Call& c) {
            check_ids(c, "ids");
            check_tables(c);
            const Tensor &ids = c.in("ids"), &positions_in = c.in("positions");
            const Tensor tokens = whole_columns(c.in("tokens"));
            const int64_t cols = tokens.dim(1), start = c.integer("start");
            const Tensor positions = positions_in ? whole_tensor(positions_in) : Tensor();
            Grid grid = ids.grid();
            grid.axes.push_back(whole(cols));
            Tensor y(grid, tokens.dtype());
            for (int64_t i = 0; i < ids.tiles(); ++i)
                for (int64_t v = 0; v < tokens.tiles(); ++v) {
                    nn_embedding_params p = params_of(
                        ids, i, tokens.dim(0), positions ? positions.dim(0) : 0, cols, start);
                    p.row_start = tokens.block(v).start[0], p.rows = tokens.block(v).extent[0];
                    p.first = v == 0;
                    task("embedding", tokens.dtype())
                        .use(p.first ? writes(y.tile(i)) : updates(y.tile(i)))
                        .use(reads(tokens.tile(v)))
                        .use(positions && p.first ? reads(positions.tile(0)) : absent())
                        .use(reads(ids.tile(i)))
                        .params(p)
                        .tile(i, y.block(i).extent)
                        .emit();
                }
            c.result(y);
        },
    .category = "layers",
};

const OpRegistrar embedding_backward = Op{
    .name = "embedding_backward",
    .doc =
        "embedding_backward(dy, ids, tokens, positions, dtokens, dpositions, {start=0}) -> "
        "dtokens, dpositions\n"
        "The gradients of embedding. Where dtokens or dpositions is given, the gradient is added "
        "to it in place."
        "\n    local ids = nn.tensor({{1, 1}}, {dtype = \"i32\"})"
        "\n    (nn.embedding_backward(nn.ones(1, 2, 3), ids, nn.zeros(2, 3)))  --> {{0, 0, 0}, {2, "
        "2, 2}}",
    .inputs = {"dy", "ids", "tokens", "positions?", "dtokens?", "dpositions?"},
    .attributes = {{"start", "int", "0", "position of the first column of ids"}},
    .samples = {"{dy={3,7,5}, ids={3,7,below=11}, tokens={11,5}, positions={9,5}}"},
    .no_gradient = "is itself a gradient",
    .run =
        [](Call& c) {
            check_ids(c, "ids");
            check_tables(c);
            const Tensor &ids = c.in("ids"), &tokens = c.in("tokens"),
                         &positions = c.in("positions");
            const int64_t cols = tokens.dim(1), start = c.integer("start");
            const Dtype sums = accumulator(tokens.dtype());
            Grid grid = ids.grid(), table = tokens.grid();
            grid.axes.push_back(whole(cols));
            table.axes[1] = whole(cols);
            c.need_shape("dy", grid.shape());
            c.need_dtype("dy", tokens.dtype());
            for (const char* name : {"dtokens", "dpositions"}) c.need_dtype(name, sums);
            c.need_shape("dtokens", tokens.shape());
            c.need(!c.in("dtokens") || c.in("dtokens").grid().tiles(1) == 1,
                   "dtokens must not be cut along its columns");
            if (positions) c.need_shape("dpositions", positions.shape());
            c.need(!c.in("dpositions") || c.in("dpositions").tiles() == 1,
                   "dpositions must be one tile");
            for (const char* name : {"dtokens", "dpositions"}) c.accumulates_into(name);
            const Tensor dy = retile(c.in("dy"), grid);
            const bool into = bool(c.in("dtokens")), into_positions = bool(c.in("dpositions"));
            const Tensor dtokens = into ? c.in("dtokens") : Tensor(table, sums);
            Tensor dpositions;
            if (positions)
                dpositions = into_positions ? c.in("dpositions")
                                            : Tensor(Grid::whole(positions.shape()), sums);
            for (int64_t i = 0; i < ids.tiles(); ++i) {
                nn_embedding_params p =
                    params_of(ids, i, tokens.dim(0), positions ? positions.dim(0) : 0, cols, start);
                for (int64_t v = 0; v < dtokens.tiles(); ++v) {
                    p.row_start = dtokens.block(v).start[0], p.rows = dtokens.block(v).extent[0];
                    p.first = i == 0 && !into;
                    task("embedding_backward", tokens.dtype())
                        .use(p.first ? writes(dtokens.tile(v)) : updates(dtokens.tile(v)))
                        .use({reads(ids.tile(i)), reads(dy.tile(i))})
                        .params(p)
                        .tile(v, dtokens.block(v).extent)
                        .emit();
                }
                if (!positions) continue;
                p.first = i == 0 && !into_positions;
                task("positions_backward", tokens.dtype())
                    .use(p.first ? writes(dpositions.tile(0)) : updates(dpositions.tile(0)))
                    .use(reads(dy.tile(i)))
                    .params(p)
                    .tile(0, dpositions.shape())
                    .emit();
            }
            c.result(dtokens);
            c.result(dpositions);
        },
    .category = "gradients",
    .kernels = {"positions_backward"},
};

}  // namespace
}  // namespace nn
