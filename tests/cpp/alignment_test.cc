// CUDA kernels load 16 bytes at a time if tiles allow it. These tests use tiles that do not:
// displaced by one element, with rows or a size that is no multiple of 16 bytes. The results must
// equal those of aligned tiles and of the CPU.
#include "kernels/params/attention_cache.h"
#include "kernels/params/embedding.h"
#include "kernels/params/fill.h"
#include "kernels/params/gather.h"
#include "kernels/params/glu.h"
#include "kernels/params/optimizer.h"
#include "kernels/params/pointwise.h"
#include "kernels/params/random.h"
#include "kernels/params/reduce.h"
#include "kernels/params/rows.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

// Calls f(aligned variant, displaced variant) for every CUDA device and float dtype.
template <class F> void each_displaced(F f) {
    each_variant([&](const Variant& v) {
        if (!v.cuda) return;
        Variant displaced = v;
        displaced.displaced = 1;
        f(v, displaced);
    });
}

// The first operand after a call on copies of the tiles.
template <class P>
Values result(const Variant& v, const std::string& name, const P& params, std::vector<Tile> tiles) {
    std::vector<Tile*> operands;
    for (Tile& tile : tiles) operands.push_back(tile.size() ? &tile : nullptr);
    CHECK(run(v, name, params, operands) == "");
    return tiles[0].values();
}

template <class P>
void check_same(const Variant& v, const Variant& displaced, const std::string& name,
                const P& params, const std::vector<Tile>& tiles, double tolerance = 0) {
    const Variant cpu{&cpu_target(), v.dtype};
    const Values want = result(v, name, params, tiles);
    check_close(name + ", displaced", result(displaced, name, params, tiles), want, tolerance);
    check_close(name + ", on a CPU", result(cpu, name, params, tiles), want, 4 * v.eps() + 4e-6);
}

}  // namespace

TEST_CASE("elementwise kernels give the same bits for tiles of any alignment and size") {
    Random random(7);
    each_displaced([&](const Variant& v, const Variant& displaced) {
        const Tile none = v.tile({});
        for (size_t n : {1, 8, 19, 1000, 1003}) {
            INFO("n " << n);
            const auto tile = [&] { return v.tile(random.values(n)); };
            const auto sums = [&] { return v.sums(random.values(n, 0, 1)); };
            const int64_t size = int64_t(n);
            nn_pointwise_params add{};
            add.ndim = 1, add.extent[0] = size;
            add.stride[0][0] = add.stride[1][0] = 1;
            check_same(v, displaced, "add", add, {v.output(n), tile(), tile()});
            nn_random_params numbers{};
            numbers.seed = 5, numbers.ndim = 1, numbers.a = 0.25, numbers.b = 2;
            numbers.extent[0] = size, numbers.start[0] = 3, numbers.whole[0] = size + 3;
            check_same(v, displaced, "random_normal", numbers, {v.output(n)});
            check_same(v, displaced, "dropout", numbers, {v.output(n), tile()});
            numbers.start[0] = 4, numbers.whole[0] = size + 4;  // whole Philox blocks
            check_same(v, displaced, "random_uniform", numbers, {v.output(n)});
            check_same(v, displaced, "dropout", numbers, {v.output(n), tile()});
            check_same(v, displaced, "fill", nn_fill_params{size, 1.5}, {v.output(n)});
            const Dtype other = v.dtype == Dtype::f32 ? Dtype::bf16 : Dtype::f32;
            check_same(v, displaced, "cast", nn_cast_params{size, int32_t(other)},
                       {v.output(n), Tile(other, random.values(n))});
            nn_sgd_params sgd{size, 0.1, 0.9, 0.01, 0, 1, 0, 0, int32_t(v.dtype)};
            check_same(v, displaced, "sgd", sgd, {tile(), sums(), tile(), none});
            sgd.grad_dtype = int32_t(v.sum());
            check_same(v, displaced, "sgd", sgd, {tile(), none, sums(), none});
            const nn_adamw_params adamw{size, 0.01, 0.9, 0.95, 1e-8, 0.1, 1, 0, 0, int32_t(v.dtype),
                                        0,    0,    {}};
            check_same(v, displaced, "adamw", adamw, {tile(), sums(), sums(), tile(), none, none});
            const nn_rmsprop_params rmsprop{{size, 0.01, 0.1, 0, 0, int32_t(v.dtype)}, 0.9, 1, 0.5};
            check_same(v, displaced, "rmsprop", rmsprop,
                       {tile(), none, tile(), none, sums(), none, sums()});
        }
    });
}

TEST_CASE("pointwise kernels broadcast rows and numbers for tiles of any alignment") {
    Random random(8);
    each_displaced([&](const Variant& v, const Variant& displaced) {
        for (int64_t cols : {8, 24, 13}) {
            INFO("cols " << cols);
            nn_pointwise_params p{};
            p.ndim = 2, p.extent[0] = 5, p.extent[1] = cols;
            p.stride[0][0] = p.stride[1][0] = cols, p.stride[0][1] = 1, p.stride[2][0] = 1;
            p.stride[1][0] = 0, p.stride[1][1] = 1;
            const auto tile = [&](int64_t n) { return v.tile(random.values(size_t(n))); };
            check_same(v, displaced, "mul", p,
                       {v.output(size_t(5 * cols)), tile(5 * cols), tile(cols)});
            p.stride[1][0] = 1, p.stride[1][1] = 0;
            check_same(v, displaced, "mul", p,
                       {v.output(size_t(5 * cols)), tile(5 * cols), tile(5)});
            const Tile condition(Dtype::boolean, random.integers(size_t(5 * cols), 0, 1));
            p.stride[1][0] = 0, p.stride[1][1] = 1, p.stride[2][0] = cols, p.stride[2][1] = 1;
            check_same(v, displaced, "where", p,
                       {v.output(size_t(5 * cols)), condition, tile(cols), tile(5 * cols)});
        }
    });
}

TEST_CASE("row kernels give the same results for rows of any alignment and length") {
    Random random(9);
    each_displaced([&](const Variant& v, const Variant& displaced) {
        const double tolerance = 2 * v.eps() + 1e-6;  // another order of sums
        const int64_t rows = 6;
        for (int64_t cols : {3, 8, 45, 257}) {
            INFO("cols " << cols);
            const size_t n = size_t(rows * cols);
            const auto tile = [&] { return v.tile(random.values(n)); };
            const nn_rows_params p{rows, cols};
            check_same(v, displaced, "softmax", p, {v.output(n), tile()}, tolerance);
            check_same(v, displaced, "log_softmax_backward", p, {v.output(n), tile(), tile()},
                       tolerance);
            const nn_glu_params glu{rows, cols, nn_glu_silu, 1};
            const Tile twice = v.tile(random.values(2 * n));
            check_same(v, displaced, "glu", glu, {v.output(n), twice});
            check_same(v, displaced, "glu_backward", glu,
                       {v.output(2 * n), v.sum_output(size_t(2 * cols)), tile(), twice}, tolerance);
            for (int32_t kind : {0, 1}) {
                const Dtype out = kind ? v.dtype : v.sum();
                for (int64_t inner : {int64_t(1), cols}) {
                    const int64_t outer = inner == 1 ? rows : 1;
                    const nn_reduce_params reduce{outer, int64_t(n) / outer / inner, inner, 1, kind,
                                                  1};
                    check_same(v, displaced, "reduce", reduce,
                               {Tile::poisoned(out, size_t(outer * inner)), tile()}, tolerance);
                    const nn_argreduce_params search{outer, int64_t(n) / outer / inner, inner, 0, 1,
                                                     1};
                    check_same(v, displaced, "argreduce", search,
                               {Tile::poisoned(Dtype::i64, size_t(outer * inner)),
                                v.output(size_t(outer * inner)), tile()});
                }
            }
            const nn_embedding_params embedding{2, 3, 0, 0, 5, 5, 3, cols, 1, int32_t(Dtype::i64)};
            const Tile ids(Dtype::i64, {4, 1, 4, 0, 4, 1});
            check_same(v, displaced, "embedding_backward", embedding,
                       {v.sum_output(size_t(5 * cols)), ids, tile()});
            check_same(v, displaced, "positions_backward", embedding,
                       {v.sum_output(size_t(3 * cols)), tile()});
            for (Dtype dtype : {Dtype::i32, Dtype::i64}) {
                const nn_gather_params gather{2, 3, 5, cols, int32_t(dtype), 0};
                const Tile index(dtype, random.integers(size_t(10 * cols), 0, 2));
                check_same(v, displaced, "gather", gather,
                           {v.output(size_t(10 * cols)), tile(), index});
            }
        }
    });
}

TEST_CASE("attention over a cache gives the same results on CUDA devices and CPUs") {
    Random random(10);
    each_displaced([&](const Variant& v, const Variant& displaced) {
        for (int64_t dim : {4, 24, 64, 80})
            for (int64_t kv_heads : {1, 2}) {
                INFO("dim " << dim << ", kv heads " << kv_heads);
                const int64_t batch = 2, heads = 4, len = kv_heads == 1 ? 3 : 20, context = 70;
                const int64_t window = dim == 24 ? 10 : 0;
                const nn_cache_params p{
                    batch, heads, kv_heads, dim, len, context, window, 0.3, int32_t(Dtype::i64),
                    6,     20};
                const Tile start(Dtype::i64, {0, context - len - 6});
                const Tile qkv =
                    v.tile(random.values(size_t(batch * len * (heads + 2 * kv_heads) * dim)));
                const Tile cache =
                    v.tile(random.values(size_t(batch * 2 * kv_heads * context * dim)));
                const Tile bias = v.tile(random.values(size_t(6 * heads)));
                const auto attended = [&](const Variant& by) {
                    Tile held = cache, in = qkv, at = start, added = bias,
                         o = by.output(size_t(batch * len * heads * dim));
                    CHECK(run(by, "attention_cached", p,
                              {&held, &in, &at, &o, dim == 64 ? &added : nullptr}) == "");
                    return std::pair{held.values(), o.values()};
                };
                const auto [held, o] = attended({&cpu_target(), v.dtype});
                for (const Variant& by : {v, displaced}) {
                    const auto [got_held, got_o] = attended(by);
                    check_close("cache", got_held, held, 0);
                    check_close("o", got_o, o, 2 * v.eps() + 2e-5);
                }
            }
    });
}
