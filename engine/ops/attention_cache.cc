// Attention with a cache of keys and values, for generating text: the new tokens' keys and values
// are written into the cache in place, and their queries attend to the whole cache.
#include "kernels/params/attention_cache.h"

#include <cmath>

#include "engine/ops/relative_bias.h"

namespace nn {
namespace {

nn_cache_params params_of(const Call& c) {
    const Tensor &cache = c.in("cache"), &qkv = c.in("qkv"), &start = c.in("start");
    c.need_float("qkv");
    c.need_dtype("cache", qkv.dtype());
    c.need(cache.rank() == 4 && cache.dim(1) % 2 == 0,
           "cache is {}; it must be (batch, 2 kv_heads, context, head_dim)", cache);
    nn_cache_params p{};
    p.batch = cache.dim(0), p.kv_heads = cache.dim(1) / 2;
    p.context = cache.dim(2), p.head_dim = cache.dim(3), p.heads = c.integer("heads");
    c.need(p.heads >= 1 && p.heads % p.kv_heads == 0,
           "{} heads cannot share the cache's {} key/value heads", p.heads, p.kv_heads);
    const int64_t width = (p.heads + 2 * p.kv_heads) * p.head_dim;
    c.need(qkv.rank() == 3 && qkv.dim(0) == p.batch && qkv.dim(2) == width,
           "qkv is {}; for this cache it must be ({}, tokens, {})", qkv, p.batch, width);
    p.len = qkv.dim(1);
    c.need_shape("start", {p.batch});
    c.need_ids("start");
    p.start_dtype = int32_t(start.dtype());
    return p;
}

// Cut along the batch only, as the cache is.
Grid batch_grid(const Tensor& cache, const Dims& shape) {
    return Grid::whole(shape).with(0, cache.grid().axes[0]);
}

// Emits a task of `kernel` for each tile of the batch. o is cut like the cache, or absent.
void emit_tasks(Call& c, const char* kernel, nn_cache_params p, const Tensor& o,
                const Tensor& bias) {
    const Tensor& cache = c.in("cache");
    const Tensor whole = retile(cache, batch_grid(cache, cache.shape()));
    const Tensor qkv = retile(c.in("qkv"), batch_grid(cache, c.in("qkv").shape()));
    const Tensor start = retile(c.in("start"), batch_grid(cache, {p.batch}));
    for (int64_t i = 0; i < whole.tiles(); ++i) {
        p.batch = whole.block(i).extent[0];
        TaskBuilder builder = task(kernel, whole.dtype());
        builder.use({updates(whole, i), reads(qkv, i), reads(start, i)});
        // How much of the cache is read depends on the data: at most the window, or all of it.
        const double row = double(p.batch * p.head_dim) * double(dtype_size(whole.dtype()));
        const double written = row * 4 * double(p.len * p.kv_heads);
        const int64_t seen = p.window ? std::min(p.window + p.len, p.context) : p.context;
        if (o)
            builder.use({writes(o, i), reads(bias, 0)})
                .bytes(written + row * 2 * double(seen * p.kv_heads + p.len * p.heads))
                .flops(4.0 * double(p.batch * p.len * p.heads * p.head_dim * p.context))
                .splits(true);
        else
            builder.bytes(written).priority(1);  // short, and qkv stays in memory until it ends
        builder.params(p).emit(i, whole.block(i).extent);
    }
    if (whole.identity() != cache.identity()) copy_into(cache, whole);
    c.result(cache);
}

const Attribute heads_attribute = {"heads", "int", "", "query heads"};

const OpRegistrar cache_write = Op{
    .doc = R"(cache_write_(cache!, qkv, start) -> cache
Writes the keys and values of new tokens into cache (batch, 2 kv_heads, context, head_dim), from
position start (batch) on in each sequence. qkv (batch, tokens, (heads + 2 kv_heads) head_dim) packs
them as attention takes them. Error: a cache without room for them.
    local cache, start = nn.zeros(1, 4, 8, 2), nn.tensor({0}, {dtype = "i32"})
    nn.cache_write_(cache, nn.ones(1, 3, 12), start, {heads = 2}):sum()  --> 24)",
    .attributes = {heads_attribute},
    .samples = {"{cache={2,4,9,3}, qkv={2,3,18}, start={2,below=6}, heads=2}"},
    .run = [](Call& c) { emit_tasks(c, "cache_write", params_of(c), Tensor(), Tensor()); },
    .kernels = {"cache_write"},
};

void run_attention_cached(Call& c) {
    nn_cache_params p = params_of(c);
    p.window = c.integer("window");
    c.need(p.window >= 0, "window is {}; at least 0 is needed", p.window);
    p.scale = c.given("scale") ? c.number("scale") : 1 / std::sqrt(double(p.head_dim));
    const Tensor bias = relative_bias(c, p, true);
    const Dims shape = {p.batch, p.len, p.heads * p.head_dim};
    const Tensor o(batch_grid(c.in("cache"), shape), c.in("qkv").dtype());
    emit_tasks(c, "attention_cached", p, o, bias);
    c.result(o);
}

const OpRegistrar attention_cached = Op{
    .doc = R"(attention_cached_(cache!, qkv, start, bias?) -> cache, o
cache_write_, and causal attention of the queries of the new tokens over all keys and values that
the cache then holds. o is (batch, tokens, heads head_dim). bias (buckets, heads) is added to the
scores by the distance of the tokens, as in attention. Error: a cache without room for them.
    local cache, qkv = nn.zeros(1, 4, 8, 2), nn.randn(1, 1, 12)   -- 2 heads of 2, room for 8 tokens
    local start = nn.tensor({0}, {dtype = "i32"})
    local _, o = nn.attention_cached_(cache, qkv, start, {heads = 2})
    o:dims()  --> 1, 1, 4)",
    .attributes = {heads_attribute,
                   {"window", "int", "0", "a query sees the newest `window` keys only; 0: all"},
                   {"scale", "number", "nil", "of the scores; 1 / sqrt(head_dim) by default"},
                   {"max_distance", "int", "128",
                    "of bias: larger distances share the last bucket"}},
    .samples = {"{cache={2,4,9,3}, qkv={2,3,18}, start={2,below=6}, heads=2}",
                "{cache={3,2,5,2}, qkv={3,1,16}, start={3,below=5}, heads=6}",
                "{cache={2,4,9,3}, qkv={2,3,18}, start={2,below=6}, heads=2, window=2}",
                "{cache={2,4,9,3}, qkv={2,3,18}, start={2,below=6}, bias={4,2}, heads=2, "
                "max_distance=5}"},
    .no_gradient = "is for generation, which needs none",
    .run = run_attention_cached,
    .kernels = {"attention_cached"},
};

}  // namespace
}  // namespace nn
