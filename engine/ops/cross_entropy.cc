// Cross-entropy over vocabulary tiles: on given logits, and fused with the output projection so
// that the logits of all tokens never exist at once.
#include "kernels/params/cross_entropy.h"

#include "engine/graph/context.h"
#include "engine/machine/description.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"
#include "kernels/params/gelu.h"
#include "kernels/params/gemm.h"

namespace nn {
namespace {

const Attribute ignore_attribute = {"ignore_index", "int", "-100",
                                    "targets with this value do not count"};

// Targets (...) of i32 or i64 for x (..., n) as (rows), cut like `rows`, which is x as (rows, n).
Tensor target_rows(const Call& c, const Tensor& x, const Tensor& rows) {
    const Tensor& targets = c.in("targets");
    const Dims leading(x.shape().begin(), x.shape().end() - 1);
    c.need_ids("targets");
    c.need(targets.shape() == leading || targets.shape() == Dims{rows.dim(0)},
           "targets are {}; for {} they must be {}", targets, x, leading);
    return retile(reshape(targets, {targets.count()}), Grid({rows.grid().axes[0]}));
}

nn_cross_entropy_params params_of(const Call& c, const Tensor& targets, int64_t vocab) {
    nn_cross_entropy_params p{};
    p.vocab = vocab, p.scale = 1;
    p.ignore_index = c.integer("ignore_index");
    p.targets_dtype = int32_t(targets.dtype());
    return p;
}

// Number of targets that count, as f64.
Tensor count_targets(nn_cross_entropy_params p, const Tensor& targets) {
    const Tensor count(Grid(), Dtype::f64);
    for (int64_t i = 0; i < targets.tiles(); ++i) {
        p.rows = targets.block(i).extent[0];
        p.first = i == 0;
        task("ce_count", Dtype::f64)
            .use({adds(count, 0, p.first), reads(targets, i)})
            .params(p)
            .emit(i, targets.block(i).extent);
    }
    return count;
}

// The operands of kernels for one tile of logits: rows of a token tile, columns of a vocabulary
// tile.
struct LogitsTile {
    TilePtr logits, stats, targets;
    Dtype dtype;
    int64_t rows, cols, ld, col_start, number;
};

LogitsTile logits_tile(const Tensor& logits, const Tensor& stats, const Tensor& targets,
                       int64_t i) {
    const int64_t row = i / logits.grid().tiles(1);
    const Block block = logits.block(i);
    return {logits.tile(i),  stats.tile(row), targets.tile(row),
            logits.dtype(),  block.extent[0], block.extent[1],
            block.extent[1], block.start[1],  i};
}

void emit_stats(nn_cross_entropy_params p, const LogitsTile& t, bool first) {
    p.rows = t.rows, p.cols = t.cols, p.ld = t.ld, p.col_start = t.col_start, p.first = first;
    task("ce_stats", t.dtype)
        .use({first ? writes(t.stats) : updates(t.stats), reads(t.logits), reads(t.targets)})
        .params(p)
        .emit(t.number, {t.rows, t.cols}, 5);
}

void emit_loss(nn_cross_entropy_params p, const LogitsTile& t, const Tensor& loss, bool first) {
    p.rows = t.rows, p.first = first;
    task("ce_loss", t.dtype)
        .use({adds(loss, 0, first), reads(t.stats), reads(t.targets)})
        .params(p)
        .emit(t.number, {t.rows});
}

void emit_grad(nn_cross_entropy_params p, const LogitsTile& t, const TilePtr& dlogits,
               const Tensor& divisor) {
    p.rows = t.rows, p.cols = t.cols, p.ld = t.ld, p.col_start = t.col_start;
    task("ce_grad", t.dtype)
        .use(dlogits == t.logits ? updates(dlogits) : writes(dlogits))
        .use({reads(t.logits), reads(t.stats), reads(t.targets), reads(divisor, 0)})
        .params(p)
        .emit(t.number, {t.rows, t.cols}, 5);
}

// By what the sum is divided: the given divisor, else the number of targets that count. 0 * count
// is added to a divisor, because ce_count checks the targets.
Tensor divisor_of(const Call& c, const Tensor& count) {
    const Tensor& given = c.in("divisor");
    if (!given) return count;
    c.need_tensor("divisor", {}, Dtype::f64);
    const Tensor nothing = pointwise("mul", Dtype::f64, Dtype::f64, {count, 0.0});
    return pointwise("add", Dtype::f64, Dtype::f64, {given, nothing});
}

// scale * sum / divisor as a scalar of the accumulator dtype; 0, like its gradient, if the divisor
// is 0, because then no target counts.
Tensor mean_loss(const Tensor& sum, const Tensor& divisor, double scale, Dtype dtype) {
    const Tensor positive =
        pointwise("maximum", Dtype::f64, Dtype::f64, {divisor, nn_least_divisor});
    const Tensor mean = pointwise("div", Dtype::f64, Dtype::f64, {sum, positive});
    return cast(scale == 1 ? mean : pointwise("mul", Dtype::f64, Dtype::f64, {mean, scale}),
                accumulator(dtype));
}

Grid stats_grid(const Tensor& rows) { return rows.grid().with(1, whole(3)); }

void run_cross_entropy(Call& c) {
    c.need_float("logits");
    c.need(c.in("logits").rank() >= 1, "logits need a last axis of vocabulary entries");
    const Tensor logits = as_rows(c.in("logits"));
    const Tensor targets = target_rows(c, c.in("logits"), logits);
    const nn_cross_entropy_params p = params_of(c, targets, logits.dim(1));
    const Tensor count = count_targets(p, targets), loss(Grid(), Dtype::f64);
    const Tensor divisor = divisor_of(c, count);
    const Tensor stats(stats_grid(logits), accumulator(logits.dtype()));
    const int64_t columns = logits.grid().tiles(1);
    for (int64_t i = 0; i < logits.tiles(); ++i) {
        const LogitsTile t = logits_tile(logits, stats, targets, i);
        emit_stats(p, t, i % columns == 0);
        if (i % columns == columns - 1) emit_loss(p, t, loss, i < columns);
    }
    c.results = {mean_loss(loss, divisor, 1, logits.dtype()), stats, count, divisor};
}

const OpRegistrar cross_entropy = Op{
    .doc = R"(cross_entropy(logits, targets, divisor?) -> loss, stats~, count~, denominator~
Mean of -log softmax(logits)[target] over the targets that are not ignore_index, for logits (...,
vocab) and 0-based targets (...). 0 if every target is ignored. divisor (f64, one element): by which
the sum is divided, instead of by count, the number of these targets. The backward pass uses stats
and denominator, the divisor or count. Error: a target outside the vocabulary.
    local logits, targets = nn.zeros(2, 4), nn.tensor({3, 0}, {dtype = "i32"})
    nn.cross_entropy(logits, targets):item()  --> 1.3863)",
    .attributes = {ignore_attribute},
    .samples = {"{logits={6,11}, targets={6,below=11}}",
                "{logits={2,3,7}, targets={2,3,below=7}, ignore_index=2}"},
    .run = run_cross_entropy,
    .category = "losses",
    .kernels = {"ce_count", "ce_stats", "ce_loss", "maximum", "div", "mul", "add"},
};

void run_cross_entropy_backward(Call& c) {
    c.need_float("logits");
    const Tensor& in = c.in("logits");
    const Tensor logits = as_rows(in);
    c.need_tensor("stats", {logits.dim(0), 3}, accumulator(in.dtype()));
    c.need_tensor("denominator", {}, Dtype::f64);
    const Tensor targets = target_rows(c, in, logits);
    const Tensor stats = retile(c.in("stats"), stats_grid(logits));
    const nn_cross_entropy_params p = params_of(c, targets, logits.dim(1));
    const Tensor dlogits(logits.grid(), logits.dtype());
    for (int64_t i = 0; i < logits.tiles(); ++i)
        emit_grad(p, logits_tile(logits, stats, targets, i), dlogits.tile(i), c.in("denominator"));
    c.result(reshape(dlogits, in.shape()));
}

const OpRegistrar cross_entropy_backward = Op{
    .doc = R"(cross_entropy_backward(logits, targets, stats, denominator) -> dlogits
(softmax(logits) - onehot(target)) / denominator, 0 in ignored rows: the gradient of cross_entropy
for dloss = 1.
    local logits, targets = nn.zeros(1, 2), nn.tensor({1}, {dtype = "i32"})
    local _, stats, _, denominator = nn.cross_entropy(logits, targets)
    nn.cross_entropy_backward(logits, targets, stats, denominator)  --> {{0.5, -0.5}})",
    .attributes = {ignore_attribute},
    .gradient_of = "cross_entropy",
    .run = run_cross_entropy_backward,
    .kernels = {"ce_grad"},
};

// Rows of logits begin at multiples of so many elements. cuBLASLt multiplies fast only if rows
// begin at multiples of 16 bytes.
constexpr int64_t row_multiple = 8;

// The output projection fused with the loss. Token tiles share `window` sets of logits tiles, which
// bounds the memory: a task that writes a logits tile waits for all readers of its earlier value.
class FusedHead {
public:
    explicit FusedHead(Call& call)
        : c(call),
          hidden(as_rows(rows_of(c.in("hidden")))),
          weight(whole_axis(c.in("weight"), 1)),
          bias(c.in("bias") ? retile(c.in("bias"), Grid({weight.grid().axes[0]})) : Tensor()),
          targets(target_rows(c, c.in("hidden"), hidden)),
          p(params_of(c, targets, weight.dim(0))),
          stats(stats_grid(hidden), accumulator(hidden.dtype())),
          loss(Grid(), Dtype::f64),
          gradient(c.flag("gradient")),
          into(gradient && c.in("dweight")) {
        p.scale = c.number("scale");
        if (!gradient) return;
        const Dtype sums = accumulator(hidden.dtype());
        c.need_dtype("dweight", sums);
        c.need(!into || c.in("dweight").grid() == weight.grid(),
               "dweight must have weight's shape and cuts: full_like(weight, 0)");
        dhidden = Tensor(hidden.grid(), sums);
        dweight = into ? c.in("dweight") : Tensor(weight.grid(), sums);
        if (bias) dbias = Tensor(bias.grid(), sums);
    }

    void run() {
        count = count_targets(p, targets);
        divisor = divisor_of(c, count);
        for (int64_t i = 0; i < hidden.tiles(); ++i) {
            for (int64_t v = 0; v < weight.tiles(); ++v) project(i, v);
            emit_loss(p, scratch(i, 0), loss, i == 0);
            for (int64_t v = 0; gradient && v < weight.tiles(); ++v) differentiate(i, v);
        }
        c.result(mean_loss(loss, divisor, p.scale, hidden.dtype()));
        c.result(gradient ? reshape(cast(dhidden, hidden.dtype()), c.in("hidden").shape())
                          : Tensor());
        c.result(dweight);
        c.result(dbias);
        c.result(count);
    }

private:
    LogitsTile scratch(int64_t i, int64_t v) {
        const int64_t rows = hidden.block(i).extent[0];
        const Block block = weight.block(v);
        const int64_t cols = block.extent[0], start = block.start[0];
        // column_sum, for the gradient of a bias, reads rows without padding.
        const int64_t ld = bias ? cols : (cols + row_multiple - 1) / row_multiple * row_multiple;
        const size_t bytes = size_t(rows * ld) * dtype_size(hidden.dtype());
        TilePtr& tile = tiles[{i % window, v, bytes}];
        if (!tile) tile = std::make_shared<Tile>(bytes);
        return {tile, stats.tile(i), targets.tile(i), hidden.dtype(), rows, cols, ld, start, i};
    }

    void gemm(const Use& to, const TilePtr& a, const TilePtr& b, nn_gemm_params q,
              const Use& addend = absent()) {
        q.beta = to.mode == Mode::write ? 0 : 1;
        q.epilogue = addend.tile ? 1 : 0;
        task("gemm", hidden.dtype())
            .use({to, reads(a), reads(b), addend, absent()})
            .params(q)
            .emit(0, {q.m, q.n}, 2.0 * double(q.k));
    }

    void project(int64_t i, int64_t v) {
        const LogitsTile t = scratch(i, v);
        nn_gemm_params q = gemm_params(t.rows, t.cols, hidden.dim(1), {.trans_b = true});
        q.ldc = t.ld;
        gemm(writes(t.logits), hidden.tile(i), weight.tile(v), q, reads(bias, v));
        emit_stats(p, t, v == 0);
    }

    void differentiate(int64_t i, int64_t v) {
        const LogitsTile t = scratch(i, v);
        emit_grad(p, t, t.logits, divisor);
        nn_gemm_params q = gemm_params(t.rows, hidden.dim(1), t.cols, {.wide = true});
        q.lda = t.ld;
        gemm(adds(dhidden, i, v == 0), t.logits, weight.tile(v), q);
        q = gemm_params(t.cols, hidden.dim(1), t.rows, {.trans_a = true, .wide = true});
        q.lda = t.ld;
        gemm(adds(dweight, v, i == 0 && !into), t.logits, hidden.tile(i), q);
        if (!bias) return;
        task("column_sum", hidden.dtype())
            .use({adds(dbias, v, i == 0), reads(t.logits)})
            .params(nn_column_sum_params{t.rows, t.cols, i == 0})
            .emit(i, {t.rows, t.cols}, 1);
    }

    Call& c;
    const Tensor hidden, weight, bias, targets;
    nn_cross_entropy_params p;
    Tensor stats, loss, count, divisor, dhidden, dweight, dbias;
    const bool gradient, into;
    const int64_t window = 2 + machine().count(Device::cpu) / 8;
    std::map<std::tuple<int64_t, int64_t, size_t>, TilePtr> tiles;
};

void run_linear_cross_entropy(Call& c) {
    c.need_float("hidden");
    c.need_dtype("weight", c.in("hidden").dtype());
    const Dims &h = c.in("hidden").shape(), &w = c.in("weight").shape();
    c.need(!h.empty() && w.size() == 2 && h.back() == w[1],
           "hidden is {}, weight is {}; the last sizes must be equal", h, w);
    c.need_tensor("bias", {w[0]}, c.in("hidden").dtype());
    FusedHead(c).run();
}

const OpRegistrar linear_cross_entropy = Op{
    .doc = R"(linear_cross_entropy(hidden, weight, targets, bias?,
dweight+weight, divisor?) -> loss, dhidden?~, dweight?~, dbias?~, count~
scale * cross_entropy(hidden weight^T + bias, targets, divisor) for hidden (..., embd), weight
(vocab, embd), targets (...) and bias (vocab) or none. With gradient, also the gradients for dloss = 1: they
are computed tile by tile in the same pass, so that only the logits of a few token tiles exist at
once. If dweight is given, the gradient is added to it in place.
    local hidden, head = nn.zeros(2, 8), nn.randn(50, 8)
    local targets = nn.tensor({7, 9}, {dtype = "i32"})
    nn.linear_cross_entropy(hidden, head, targets):item()  --> 3.9120)",
    .attributes = {ignore_attribute,
                   {"scale", "number", "1", "factor of the loss"},
                   {"gradient", "bool", "true", "compute the gradients too"}},
    .samples = {"{hidden={2,5,7}, weight={11,7}, targets={2,5,below=11}}",
                "{hidden={6,7}, weight={5,7}, targets={6,below=5}, ignore_index=1, scale=0.5}",
                "{hidden={2,5,7}, weight={11,7}, targets={2,5,below=11}, bias={11}}"},
    .run = run_linear_cross_entropy,
    .category = "losses",
    .kernels = {"gemm", "ce_count", "ce_stats", "ce_loss", "ce_grad", "column_sum", "maximum",
                "div", "mul", "add"},
};

}  // namespace
}  // namespace nn
