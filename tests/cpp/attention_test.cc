// Attention and its gradient against the textbook formula, and the gradient against finite
// differences.
#include "tests/cpp/attention_reference.h"
#include "tests/cpp/product_ways.h"

using namespace nn;
using namespace nn::test;

TEST_CASE("attention and its gradient agree with the textbook formula", "[sweep]") {
    Random random(1);
    each_variant([&](const Variant& v) {
        for (const Shape& s : {Shape{1, 1, 1, 1, 1, true}, Shape{2, 3, 3, 3, 17, true},
                               Shape{1, 2, 2, 65, 64, true}, Shape{2, 1, 1, 8, 65, false},
                               Shape{1, 2, 2, 64, 130, true}, Shape{1, 1, 1, 128, 70, true},
                               Shape{1, 1, 1, 5, 300, true}, Shape{1, 1, 1, 5, 300, false}})
            if (!slow(v) || s.len < 200) check_tiled(v, {s, s.len}, random);
    });
}

TEST_CASE("several query heads may share a key and value head", "[sweep]") {
    Random random(2);
    each_variant([&](const Variant& v) {
        check_tiled(v, {{2, 6, 2, 4, 33, true}, 33}, random);
        check_tiled(v, {{1, 4, 1, 16, 33, false}, 20}, random);
    });
}

TEST_CASE("attention does not depend on the tiling of the sequence", "[sweep]") {
    Random random(3);
    each_variant([&](const Variant& v) {
        for (int64_t tile : {1, 7, 64, 65, 128, 150})
            for (bool causal : {true, false})
                if (tile > 1 && (!slow(v) || tile == 64))
                    check_tiled(v, {{2, 2, 2, 8, 150, causal}, tile}, random);
        check_tiled(v, {{2, 2, 1, 3, 9, true}, 1}, random);
    });
}

TEST_CASE("dropout of attention does not depend on the tiling", "[sweep]") {
    Random random(4);
    each_variant([&](const Variant& v) {
        for (int64_t tile : {150, 64, 37})
            if (!slow(v) || tile == 64)
                check_tiled(v, {{2, 2, 1, 8, 150, true, 0.25}, tile}, random);
        check_tiled(v, {{1, 1, 1, 4, 67, false, 0.6}, 30}, random);
    });
}

TEST_CASE("a query sees the keys of its window only, for any tiling", "[sweep]") {
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

TEST_CASE("no query sees a key that the mask hides, for any tiling", "[sweep]") {
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

TEST_CASE("attention on tensor cores agrees with the formula for tiles, shared heads and dropout",
          "[sweep]") {
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
