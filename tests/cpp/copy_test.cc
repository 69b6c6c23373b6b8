// copy, cast, fill and arange. The reference copies element by element and casts a double by C++.
#include "kernels/params/copy.h"

#include "kernels/params/fill.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const std::initializer_list<Dtype> all_dtypes = {Dtype::f32, Dtype::f64, Dtype::bf16,   Dtype::i32,
                                                 Dtype::i64, Dtype::u8,  Dtype::boolean};

// Calls f(src index, dst index) for every element of the copy.
template <class F> void each_element(const nn_copy_params& p, F f) {
    int64_t total = 1;
    for (int64_t d = 0; d < p.ndim; ++d) total *= p.extent[d];
    for (int64_t i = 0; i < total; ++i) {
        int64_t rest = i, src = p.src_offset, dst = p.dst_offset;
        for (int64_t d = p.ndim - 1; d >= 0; rest /= p.extent[d--]) {
            src += rest % p.extent[d] * p.src_stride[d];
            dst += rest % p.extent[d] * p.dst_stride[d];
        }
        f(size_t(src), size_t(dst));
    }
}

// A block of a larger tensor with axes in random order; returns the tensor's size.
int64_t random_block(int64_t ndim, const int64_t* extent, int64_t* stride, int64_t* offset,
                     Random& random) {
    std::vector<int64_t> order;
    for (int64_t d = 0; d < ndim; ++d) order.insert(order.begin() + random.integer(0, d), d);
    int64_t size = 1;
    *offset = 0;
    for (int64_t d : order) {
        const int64_t before = random.integer(0, 2), after = random.integer(0, 2);
        stride[d] = size;
        *offset += before * size;
        size *= before + extent[d] + after;
    }
    return size;
}

void check_copy(const Variant& v, const nn_copy_params& p, int64_t src_size, int64_t dst_size,
                Random& random) {
    Tile src = v.tile(random.integers(size_t(src_size), 0, 1 + 99 * (v.dtype != Dtype::boolean)));
    Tile dst = v.tile(Values(size_t(dst_size), 1));
    Values want = dst.values();
    each_element(p, [&](size_t s, size_t d) { want[d] = src[s]; });
    CHECK(run(v, "copy", p, {&dst, &src}) == "");
    check_close("copy", dst, want, 0);
}

TEST_CASE("a copy moves any block between any two layouts and changes nothing else") {
    each_variant(
        [](const Variant& v) {
            Random random(1);
            for (int trial = 0; trial < 60; ++trial) {
                nn_copy_params p{};
                p.ndim = random.integer(0, 5);
                for (int64_t d = 0; d < p.ndim; ++d)
                    p.extent[d] = random.integer(1, p.ndim < 3 ? 40 : 6);
                const int64_t src =
                    random_block(p.ndim, p.extent, p.src_stride, &p.src_offset, random);
                const int64_t dst =
                    random_block(p.ndim, p.extent, p.dst_stride, &p.dst_offset, random);
                INFO("trial " << trial);
                check_copy(v, p, src, dst, random);
            }
        },
        all_dtypes);
}

TEST_CASE("a copy transposes matrices of any size, also in batches") {
    each_variant(
        [](const Variant& v) {
            Random random(2);
            for (const auto& [batch, rows, cols] :
                 {std::tuple<int64_t, int64_t, int64_t>{1, 128, 256},
                  {1, 129, 67},
                  {3, 64, 40},
                  {1, 1, 300},
                  {1, 300, 1},
                  {2, 33, 130}}) {
                nn_copy_params p{};
                p.ndim = 3;
                p.extent[0] = batch, p.extent[1] = rows, p.extent[2] = cols;
                p.src_stride[0] = p.dst_stride[0] = rows * cols;
                p.src_stride[1] = 1, p.src_stride[2] = rows;
                p.dst_stride[1] = cols, p.dst_stride[2] = 1;
                check_copy(v, p, batch * rows * cols, batch * rows * cols, random);
            }
        },
        all_dtypes);
}

TEST_CASE("a copy broadcasts along source strides of 0 and does nothing for an empty block") {
    const Variant v{&cpu_target(), Dtype::f32};
    Random random(3);
    nn_copy_params p{};
    p.ndim = 2;
    p.extent[0] = 3, p.extent[1] = 4;
    p.src_stride[1] = 1, p.dst_stride[0] = 4, p.dst_stride[1] = 1;
    check_copy(v, p, 4, 12, random);
    p.extent[0] = 0;
    check_copy(v, p, 4, 12, random);
}

// A double, converted to a dtype and back.
double stored(Dtype to, double x) {
    if (to == Dtype::boolean) return x != 0;
    if (!is_float(to)) x = std::trunc(x);
    return Tile(to, {x})[0];
}

TEST_CASE("a cast between any two dtypes rounds, truncates or tests for zero") {
    const Values numbers = {0, 1, 2, 3, 100, 127, 200, 255, 1.5, 2.75, 0.25, 99.99, 1e-3};
    each_variant(
        [&](const Variant& v) {
            for (Dtype from : all_dtypes) {
                Values in = numbers;
                if (is_float(from) || from == Dtype::i32 || from == Dtype::i64)
                    if (v.dtype != Dtype::u8)
                        in.insert(in.end(), {-1, -100, -1.75, -65535, 65537, 16777215});
                while (in.size() < 67) in.push_back(in[in.size() - 11]);
                for (double& x : in) x = stored(from, x);
                Tile x(from, in), y = v.output(in.size());
                Values want;
                for (double value : in) want.push_back(stored(v.dtype, value));
                INFO("from " << dtype_name(from));
                CHECK(run(v, "cast", nn_cast_params{int64_t(in.size()), int32_t(from)}, {&y, &x}) ==
                      "");
                check_close("cast", y, want, 0);
            }
        },
        all_dtypes);
}

TEST_CASE("casts round to nearest even, keep NaN and infinity, and wrap integers") {
    const double inf = std::numeric_limits<double>::infinity(),
                 nan = std::numeric_limits<double>::quiet_NaN();
    each_variant(
        [&](const Variant& v) {
            Tile x(Dtype::f32, {1.00390625, 1.01171875, nan, inf, -inf, 3.4e38}), y = v.output(6);
            CHECK(run(v, "cast", nn_cast_params{6, int32_t(Dtype::f32)}, {&y, &x}) == "");
            check_close("cast", y, {1, 1.015625, nan, inf, -inf, inf}, 0);
        },
        {Dtype::bf16});
    each_variant(
        [&](const Variant& v) {
            Tile x(Dtype::i64, {300, -1, 255}), y = v.output(3);
            CHECK(run(v, "cast", nn_cast_params{3, int32_t(Dtype::i64)}, {&y, &x}) == "");
            CHECK(y.values() == Values{44, 255, 255});
        },
        {Dtype::u8});
    each_variant(
        [&](const Variant& v) {
            Tile x(Dtype::f32, {nan, 0.25, -0.0, inf}), y = v.output(4);
            CHECK(run(v, "cast", nn_cast_params{4, int32_t(Dtype::f32)}, {&y, &x}) == "");
            CHECK(y.values() == Values{1, 1, 0, 1});
        },
        {Dtype::boolean});
}

TEST_CASE("fill writes one value everywhere") {
    each_variant(
        [](const Variant& v) {
            for (size_t n : {0, 1, 5, 1000})
                for (double value : {0.0, 2.75, 200.0}) {
                    Tile y = v.output(n);
                    CHECK(run(v, "fill", nn_fill_params{int64_t(n), value}, {&y}) == "");
                    check_close("fill", y, Values(n, stored(v.dtype, value)), 0);
                }
        },
        all_dtypes);
}

TEST_CASE("arange steps exactly in integers and rounds once in floats") {
    each_variant(
        [](const Variant& v) {
            Tile y = v.output(100);
            CHECK(run(v, "arange", nn_arange_params{100, 3, 2}, {&y}) == "");
            Values want;
            for (int i = 0; i < 100; ++i) want.push_back(stored(v.dtype, 3 + 2 * i));
            check_close("arange", y, want, 0);
            if (!is_float(v.dtype)) return;
            CHECK(run(v, "arange", nn_arange_params{100, -1, 0.1}, {&y}) == "");
            for (int i = 0; i < 100; ++i) want[size_t(i)] = -1 + 0.1 * i;
            check_close("arange", y, want, 2 * v.eps());
        },
        {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::i32, Dtype::i64, Dtype::u8});
}

}  // namespace
