// Token and position embedding, over vocabulary tiles, forward and backward.
#include "kernels/params/embedding.h"

#include <algorithm>

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

void check(const Call& c) {
    const Tensor &ids = c.in("ids"), &tokens = c.in("tokens"), &positions = c.in("positions");
    c.need_ids("ids");
    c.need(ids.rank() >= 1, "ids needs at least one axis, (..., time)");
    c.need_float("tokens");
    c.need(tokens.rank() == 2, "tokens is {}; it must be (vocab, embd)", tokens);
    const int64_t start = c.integer("start");
    c.need(start >= 0 && start <= max_count, "start is {}; at least 0 is needed", start);
    if (!positions) return;
    c.need_dtype("positions", tokens.dtype());
    c.need(positions.rank() == 2 && positions.dim(1) == tokens.dim(1),
           "positions is {}; it must be (context, {})", positions, tokens.dim(1));
    c.need(start <= positions.dim(0) - ids.dim(-1),
           "{} tokens from position {} on; the context has {} positions", ids.dim(-1), start,
           positions.dim(0));
}

// For a tile of ids (batch, time), which has whole sequences, or a range of one.
nn_embedding_params params_of(const Call& c, int64_t tile) {
    const Tensor &ids = c.in("ids"), &tokens = c.in("tokens"), &positions = c.in("positions");
    const Block block = ids.block(tile);
    nn_embedding_params p{};
    p.len = block.extent.back();
    p.batch = block.count() / p.len;
    p.start = c.integer("start") + block.start.back();
    p.vocab = tokens.dim(0), p.context = positions ? positions.dim(0) : 0, p.cols = tokens.dim(1);
    p.ids_dtype = int32_t(ids.dtype());
    return p;
}

// Bytes of the rows that ids select from a tile of the vocabulary, if all rows are equally likely.
double bytes_of_rows(const nn_embedding_params& p, double element_bytes) {
    const double rows =
        double(p.batch * p.len) * double(p.rows) / double(std::max<int64_t>(1, p.vocab));
    return rows * double(p.cols) * element_bytes;
}

void set_rows(nn_embedding_params& p, const Block& table) {
    p.row_start = table.start[0], p.rows = table.extent[0];
}

// (..., time, embd), cut as the ids are.
Grid result_grid(const Call& c) {
    Grid grid = c.in("ids").grid();
    grid.axes.push_back(whole(c.in("tokens").dim(1)));
    return grid;
}

void run_embedding(Call& c) {
    check(c);
    const Tensor ids = c.in("ids"), tokens = whole_axis(c.in("tokens"), 1);
    const Tensor positions = whole_tensor(c.in("positions")), y(result_grid(c), tokens.dtype());
    for (int64_t i = 0; i < ids.tiles(); ++i)
        for (int64_t v = 0; v < tokens.tiles(); ++v) {
            nn_embedding_params p = params_of(c, i);
            set_rows(p, tokens.block(v));
            p.first = v == 0;
            // The first tile of the vocabulary writes all of y.
            const double selected = bytes_of_rows(p, double(dtype_size(tokens.dtype())));
            const double written = p.first ? double(y.tile(i)->bytes) : selected;
            const double of_positions = p.first && positions ? double(y.tile(i)->bytes) : 0;
            task("embedding", tokens.dtype())
                .use({adds(y, i, p.first), reads(tokens, v)})
                .use({p.first ? reads(positions, 0) : absent(), reads(ids, i)})
                .bytes(selected + written + of_positions)
                .params(p)
                .emit(i, y.block(i).extent);
        }
    c.result(y);
}

const OpRegistrar embedding = Op{
    .doc = R"(embedding(ids, tokens, positions?) -> y
y[..., t, :] = tokens[ids[..., t]] + positions[start + t] (0-based) for ids (..., time) of i32 or
i64, tokens (vocab, embd) and positions (context, embd) or none. Error: an id outside the
vocabulary.
    local ids, rows = nn.tensor({2, 0}, {dtype = "i32"}), nn.tensor{{1, 2}, {3, 4}, {5, 6}}
    (nn.embedding(ids, rows))  --> {{5, 6}, {1, 2}})",
    .attributes = {{"start", "int", "0", "position of the first column of ids"}},
    .samples = {"{ids={3,7,below=11}, tokens={11,5}, positions={9,5}}",
                "{ids={2,4,below=11}, tokens={11,6}}"},
    .run = run_embedding,
    .category = "layers",
};

void check_backward(const Call& c) {
    const Tensor &tokens = c.in("tokens"), &positions = c.in("positions");
    const Dtype sums = accumulator(tokens.dtype());
    c.need_tensor("dy", result_grid(c).shape(), tokens.dtype());
    c.need_tensor("dtokens", tokens.shape(), sums);
    c.need_dtype("dpositions", sums);
    if (positions) c.need_shape("dpositions", positions.shape());
}

void run_embedding_backward(Call& c) {
    check(c);
    check_backward(c);
    const Tensor &ids = c.in("ids"), &tokens = c.in("tokens"), &positions = c.in("positions");
    const Tensor dy = retile(c.in("dy"), result_grid(c));
    const bool into = c.in("dtokens") && c.in("dtokens").grid().tiles(1) == 1,
               into_positions = is_one_tile(c.in("dpositions"));
    const Dtype sums = accumulator(tokens.dtype());
    const Grid table = tokens.grid().with(1, whole(tokens.dim(1)));
    const Tensor dtokens = into ? c.in("dtokens") : Tensor(table, sums);
    const Tensor dpositions = !positions       ? Tensor()
                              : into_positions ? c.in("dpositions")
                                               : Tensor(Grid::whole(positions.shape()), sums);
    for (int64_t i = 0; i < ids.tiles(); ++i) {
        nn_embedding_params p = params_of(c, i);
        for (int64_t v = 0; v < dtokens.tiles(); ++v) {
            set_rows(p, dtokens.block(v));
            p.first = i == 0 && !into;
            const double zeros = p.first ? double(dtokens.tile(v)->bytes) : 0;
            const double size = double(dtype_size(tokens.dtype()) + 2 * dtype_size(sums));
            task("embedding_backward", tokens.dtype())
                .use({adds(dtokens, v, p.first), reads(ids, i), reads(dy, i)})
                .bytes(bytes_of_rows(p, size) + zeros)
                .params(p)
                .emit(v, dtokens.block(v).extent);
        }
        if (!positions) continue;
        p.first = i == 0 && !into_positions;
        task("positions_backward", tokens.dtype())
            .use({adds(dpositions, 0, p.first), reads(dy, i)})
            .params(p)
            .emit(0, dpositions.shape());
    }
    c.results = {added_to(c.in("dtokens"), dtokens), added_to(c.in("dpositions"), dpositions)};
}

const OpRegistrar embedding_backward = Op{
    .doc = R"(embedding_backward(dy, ids, tokens, positions?, dtokens+tokens,
dpositions+positions) -> dtokens, dpositions?
The gradients of embedding. If dtokens or dpositions is given, the gradient is added to it in place.
    local ids = nn.tensor({{1, 1}}, {dtype = "i32"})
    (nn.embedding_backward(nn.ones(1, 2, 3), ids, nn.zeros(2, 3)))  --> {{0, 0, 0}, {2, 2, 2}})",
    .attributes = {{"start", "int", "0", "position of the first column of ids"}},
    .samples = {"{dy={3,7,5}, ids={3,7,below=11}, tokens={11,5}, positions={9,5}}"},
    .gradient_of = "embedding",
    .run = run_embedding_backward,
    .kernels = {"embedding_backward", "positions_backward"},
};

}  // namespace
}  // namespace nn
