// gather and its adjoint scatter_add against plain loops and each other, <gather(x), dy> =
// <x, scatter_add(dy)>, and with indices out of range.
#include "kernels/params/gather.h"

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const nn_gather_params shapes[] = {
    {1, 10, 7, 1, 0}, {3, 4, 9, 5, 0}, {2, 1, 3, 64, 0}, {1, 300, 1000, 3, 0}};

nn_gather_params with_index(nn_gather_params p, Dtype dtype) {
    p.index_dtype = int32_t(dtype);
    return p;
}

TEST_CASE("gather picks the rows of the index") {
    each_variant(
        [](const Variant& v) {
            Random random(1);
            for (const auto& shape : shapes)
                for (Dtype index_dtype : {Dtype::i32, Dtype::i64}) {
                    const auto p = with_index(shape, index_dtype);
                    Tile x = v.tile(random.integers(size_t(p.outer * p.n * p.inner), 0,
                                                    1 + 99 * (v.dtype != Dtype::boolean)));
                    Tile index(index_dtype,
                               random.integers(size_t(p.outer * p.m * p.inner), 0, p.n - 1));
                    Tile y = v.output(index.size());
                    CHECK(run(v, "gather", p, {&y, &x, &index}) == "");
                    Values want;
                    for (int64_t i = 0; i < int64_t(index.size()); ++i) {
                        const int64_t outer = i / (p.m * p.inner), row = int64_t(index[size_t(i)]);
                        want.push_back(x[size_t((outer * p.n + row) * p.inner + i % p.inner)]);
                    }
                    check_close("gather", y, want, 0);
                }
        },
        {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::i32, Dtype::i64, Dtype::u8, Dtype::boolean});
}

TEST_CASE("scatter_add adds every element to the row of its index") {
    each_variant([](const Variant& v) {
        Random random(2);
        for (const auto& shape : shapes) {
            const auto p = with_index(shape, Dtype::i64);
            Tile dy = v.tile(random.values(size_t(p.outer * p.m * p.inner)));
            Tile index(Dtype::i64, random.integers(dy.size(), 0, p.n - 1));
            Tile dx = v.output(size_t(p.outer * p.n * p.inner));
            CHECK(run(v, "scatter_add", p, {&dx, &dy, &index}) == "");
            Values want(dx.size(), 0);
            for (int64_t i = 0; i < int64_t(dy.size()); ++i) {
                const int64_t outer = i / (p.m * p.inner), row = int64_t(index[size_t(i)]);
                want[size_t((outer * p.n + row) * p.inner + i % p.inner)] += dy[size_t(i)];
            }
            check_close("scatter_add", dx, want, v.eps() + 20 * v.sum_eps());
        }
    });
}

TEST_CASE("scatter_add is the adjoint of gather") {
    const Variant v{&cpu_target(), Dtype::f64};
    Random random(3);
    for (const auto& shape : shapes) {
        const auto p = with_index(shape, Dtype::i32);
        Tile x = v.tile(random.values(size_t(p.outer * p.n * p.inner)));
        Tile dy = v.tile(random.values(size_t(p.outer * p.m * p.inner)));
        Tile index(Dtype::i32, random.integers(dy.size(), 0, p.n - 1));
        Tile y = v.output(dy.size()), dx = v.output(x.size());
        CHECK(run(v, "gather", p, {&y, &x, &index}) == "");
        CHECK(run(v, "scatter_add", p, {&dx, &dy, &index}) == "");
        CHECK(dot(y.values(), dy.values()) ==
              Approx(dot(x.values(), dx.values())).epsilon(1e-12).margin(1e-12));
    }
}

TEST_CASE("scatter_add of many small numbers is precise in bfloat16") {
    each_variant(
        [](const Variant& v) {
            Tile dy = v.tile(Values(4096, 1)), index(Dtype::i64, Values(4096, 1)), dx = v.output(2);
            CHECK(run(v, "scatter_add", nn_gather_params{1, 2, 4096, 1, int32_t(Dtype::i64)},
                      {&dx, &dy, &index}) == "");
            CHECK(dx.values() == Values{0, 4096});
        },
        {Dtype::bf16});
}

TEST_CASE("an index out of range fails the call and leaves the rest intact") {
    // A GPU may report any of the bad indices.
    const auto reports_one = [](const std::string& error) {
        return error == "index 3 is outside [0,3)" || error == "index -1 is outside [0,3)";
    };
    each_variant([&](const Variant& v) {
        const nn_gather_params p{1, 3, 4, 1, int32_t(Dtype::i64)};
        Tile x = v.tile({5, 6, 7}), index(Dtype::i64, {2, 3, -1, 0}), y = v.output(4);
        CHECK(reports_one(run(v, "gather", p, {&y, &x, &index})));
        CHECK(y.values() == Values{7, 0, 0, 5});
        Tile dy = v.tile({1, 2, 4, 8}), dx = v.output(3);
        CHECK(reports_one(run(v, "scatter_add", p, {&dx, &dy, &index})));
        CHECK(dx.values() == Values{8, 0, 1});
    });
}

}  // namespace
