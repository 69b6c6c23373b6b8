// gather, its adjoint scatter_add and scatter against plain loops and each other, <gather(x), dy> =
// <x, scatter_add(dy)>, and with indices out of range.
#include "kernels/params/gather.h"

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const nn_gather_params shapes[] = {{1, 10, 7, 1, 0, 0},     {3, 4, 9, 5, 0, 0},
                                   {3, 4, 9, 5, 0, 1},      {2, 1, 3, 64, 0, 0},
                                   {1, 300, 1000, 3, 0, 0}, {1, 300, 1000, 3, 0, 1}};

nn_gather_params with_index(nn_gather_params p, Dtype dtype) {
    p.index_dtype = int32_t(dtype);
    return p;
}

int64_t index_size(const nn_gather_params& p) { return p.shared ? p.m : p.outer * p.m * p.inner; }

// The place in (outer, n, inner) that the index names for element i of (outer, m, inner).
size_t place(const nn_gather_params& p, const Tile& index, int64_t i) {
    const int64_t outer = i / (p.m * p.inner), j = i / p.inner % p.m;
    return size_t((outer * p.n + int64_t(index[size_t(p.shared ? j : i)])) * p.inner + i % p.inner);
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
                    Tile index(index_dtype, random.integers(size_t(index_size(p)), 0, p.n - 1));
                    Tile y = v.output(size_t(p.outer * p.m * p.inner));
                    CHECK(run(v, "gather", p, {&y, &x, &index}) == "");
                    Values want;
                    for (size_t i = 0; i < y.size(); ++i)
                        want.push_back(x[place(p, index, int64_t(i))]);
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
            Tile index(Dtype::i64, random.integers(size_t(index_size(p)), 0, p.n - 1));
            Tile dx = v.output(size_t(p.outer * p.n * p.inner));
            CHECK(run(v, "scatter_add", p, {&dx, &dy, &index}) == "");
            Values want(dx.size(), 0);
            for (size_t i = 0; i < dy.size(); ++i) want[place(p, index, int64_t(i))] += dy[i];
            check_close("scatter_add", dx, want, v.eps() + 20 * v.sum_eps());
        }
    });
}

TEST_CASE("scatter overwrites the row of each index, and the last element wins") {
    each_variant(
        [](const Variant& v) {
            Random random(4);
            for (const auto& shape : shapes) {
                const auto p = with_index(shape, Dtype::i32);
                Tile src = v.tile(random.integers(size_t(p.outer * p.m * p.inner), 0, 1));
                Tile index(Dtype::i32, random.integers(size_t(index_size(p)), 0, p.n - 1));
                Tile y = v.tile(random.integers(size_t(p.outer * p.n * p.inner), 0, 1));
                Values want = y.values();
                for (size_t i = 0; i < src.size(); ++i) want[place(p, index, int64_t(i))] = src[i];
                CHECK(run(v, "scatter", p, {&y, &src, &index}) == "");
                CHECK(y.values() == want);
            }
        },
        {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::i32, Dtype::i64, Dtype::u8, Dtype::boolean});
}

TEST_CASE("scatter_add is the adjoint of gather") {
    const Variant v{&cpu_target(), Dtype::f64};
    Random random(3);
    for (const auto& shape : shapes) {
        const auto p = with_index(shape, Dtype::i32);
        Tile x = v.tile(random.values(size_t(p.outer * p.n * p.inner)));
        Tile dy = v.tile(random.values(size_t(p.outer * p.m * p.inner)));
        Tile index(Dtype::i32, random.integers(size_t(index_size(p)), 0, p.n - 1));
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
            CHECK(run(v, "scatter_add", nn_gather_params{1, 2, 4096, 1, int32_t(Dtype::i64), 0},
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
        const nn_gather_params p{1, 3, 4, 1, int32_t(Dtype::i64), 0};
        Tile x = v.tile({5, 6, 7}), index(Dtype::i64, {2, 3, -1, 0}), y = v.output(4);
        CHECK(reports_one(run(v, "gather", p, {&y, &x, &index})));
        CHECK(y.values() == Values{7, 0, 0, 5});
        Tile dy = v.tile({1, 2, 4, 8}), dx = v.output(3);
        CHECK(reports_one(run(v, "scatter_add", p, {&dx, &dy, &index})));
        CHECK(dx.values() == Values{8, 0, 1});
        CHECK(reports_one(run(v, "scatter", p, {&dx, &dy, &index})));
        CHECK(dx.values() == Values{8, 0, 1});
    });
}

}  // namespace
