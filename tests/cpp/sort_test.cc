// The kernel of sorts and order statistics against std::stable_sort, with NaN, zeros of both signs
// and many equal elements; searchsorted against std::lower_bound; running sums against plain loops.
#include "kernels/params/sort.h"

#include "kernels/params/scan.h"
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

const std::initializer_list<Dtype> all_dtypes = {Dtype::f32, Dtype::f64, Dtype::bf16,   Dtype::i32,
                                                 Dtype::i64, Dtype::u8,  Dtype::boolean};

bool is_smaller(double a, double b) { return a < b || (!std::isnan(a) && std::isnan(b)); }

// The positions of a row of n elements, `inner` apart, in sorted order.
std::vector<int64_t> sorted_positions(const Tile& x, int64_t start, const nn_sort_params& p) {
    std::vector<int64_t> order;
    for (int64_t j = 0; j < p.n; ++j) order.push_back(j);
    const auto value = [&](int64_t j) { return x[size_t(start + j * p.inner)]; };
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return p.descending ? is_smaller(value(b), value(a)) : is_smaller(value(a), value(b));
    });
    return order;
}

Values awkward_values(const Variant& v, Random& random, size_t n) {
    const bool narrow = v.dtype == Dtype::u8 || v.dtype == Dtype::boolean;
    Values x = v.dtype == Dtype::boolean ? random.integers(n, 0, 1)
               : narrow                  ? random.integers(n, 0, 255)
               : is_float(v.dtype)       ? random.values(n, -1, 1)
                                         : random.integers(n, -1000000, 1000000);
    for (size_t i = 0; i < n && is_float(v.dtype); ++i) {
        const double special[] = {NAN, 0., -0., INFINITY, -INFINITY, 0.5, 0.5};
        if (random.integer(0, 3) == 0) x[i] = special[random.integer(0, 6)];
    }
    return x;
}

void check_sort(const Variant& v, const nn_sort_params& p, Tile& x) {
    const size_t results = size_t(p.outer * p.count * p.inner);
    Tile y = v.output(results), index(Dtype::i64, Values(results));
    CHECK(run(v, "sort", p, {&y, &index, &x}) == "");
    for (int64_t row = 0; row < p.outer * p.inner; ++row) {
        const int64_t o = row / p.inner, i = row % p.inner, start = o * p.n * p.inner + i;
        const auto order = sorted_positions(x, start, p);
        int64_t first = p.first;
        for (int64_t j = p.n - 1; p.nan_wins && j >= 0; --j)
            if (std::isnan(x[size_t(start + order[size_t(j)] * p.inner)])) first = j;
        for (int64_t c = 0; c < p.count; ++c) {
            const size_t at = size_t((o * p.count + c) * p.inner + i);
            const int64_t want = order[size_t(first + c)];
            if (int64_t(index[at]) != want) FAIL_CHECK("row " << row << ", rank " << first + c);
            const double value = y[at], original = x[size_t(start + want * p.inner)];
            CHECK((std::isnan(original) ? std::isnan(value) : value == original));
            CHECK(std::signbit(value) == std::signbit(original));
        }
    }
}

TEST_CASE("sort orders every axis as std::stable_sort does, with NaN last") {
    each_variant(
        [](const Variant& v) {
            Random random(1);
            for (int descending : {0, 1})
                for (const nn_sort_params& p : {nn_sort_params{1, 1, 1, 0, 1, descending, 0},
                                                {3, 33, 2, 0, 33, descending, 0},
                                                {2, 1500, 1, 0, 1500, descending, 0}}) {
                    Tile x = v.tile(awkward_values(v, random, size_t(p.outer * p.n * p.inner)));
                    check_sort(v, p, x);
                }
        },
        all_dtypes);
}

TEST_CASE("sort finds the elements of some ranks") {
    each_variant([](const Variant& v) {
        Random random(2);
        for (const nn_sort_params& p : {nn_sort_params{4, 40, 3, 5, 4, 1, 0},
                                        {3, 40, 1, 39, 1, 0, 0},
                                        {1, 2600, 1, 0, 7, 1, 0},
                                        {20, 9, 1, 4, 1, 0, 1},
                                        {2, 2100, 1, 1049, 1, 0, 1}}) {
            Tile x = v.tile(awkward_values(v, random, size_t(p.outer * p.n * p.inner)));
            if (p.nan_wins)  // some rows have no NaN
                for (size_t i = 0; i < x.size() / 2; ++i)
                    if (std::isnan(x[i])) x.set(i, 0.25);
            check_sort(v, p, x);
        }
    });
}

TEST_CASE("rows that exceed the GPU's workspace fail with its size") {
    for (const CudaDevice* device : cuda_devices()) {
        const Variant v{device->target, Dtype::f64, device};
        const int64_t n = int64_t(device->gpu.workspace_bytes / 32) + 1;
        Tile x = v.tile(Values(size_t(n))), y = v.output(1), index(Dtype::i64, Values(1));
        CHECK(run(v, "sort", nn_sort_params{1, n, 1, 0, 1, 0, 0}, {&y, &index, &x})
                  .find("bytes of workspace on the GPU") != std::string::npos);
    }
}

TEST_CASE("searchsorted finds the place of every value in its row") {
    each_variant(
        [](const Variant& v) {
            Random random(3);
            const int64_t high = v.dtype == Dtype::boolean ? 1 : 20;
            for (int right : {0, 1}) {
                const nn_searchsorted_params p{3, 30, 50, right};
                Values rows = random.integers(size_t(p.rows * p.n), 0, high);
                for (int64_t r = 0; r < p.rows; ++r)
                    std::sort(rows.begin() + r * p.n, rows.begin() + (r + 1) * p.n);
                Tile sorted = v.tile(rows);
                Tile values = v.tile(random.integers(size_t(p.rows * p.m), 0, high));
                Tile index(Dtype::i64, Values(values.size()));
                CHECK(run(v, "searchsorted", p, {&index, &sorted, &values}) == "");
                for (int64_t i = 0; i < p.rows * p.m; ++i) {
                    const auto begin = rows.begin() + i / p.m * p.n, end = begin + p.n;
                    const double value = values[size_t(i)];
                    const auto found = right ? std::upper_bound(begin, end, value)
                                             : std::lower_bound(begin, end, value);
                    CHECK(index[size_t(i)] == double(found - begin));
                }
            }
        },
        all_dtypes);
}

TEST_CASE("scan combines the elements before and after each one") {
    each_variant(
        [](const Variant& v) {
            Random random(4);
            const Dtype out = is_float(v.dtype) ? v.dtype : Dtype::i64;
            for (int kind : {0, 1})
                for (const nn_scan_params& p : {nn_scan_params{1, 1, 1, kind, 0},
                                                {2, 33, 1, kind, 0},
                                                {2, 33, 1, kind, 1},
                                                {3, 20, 5, kind, 0},
                                                {2, 4, 300, kind, 1},
                                                {1, 2600, 1, kind, 0}}) {
                    const size_t n = size_t(p.outer * p.n * p.inner);
                    Tile x = v.tile(!is_float(v.dtype) ? random.integers(n, kind ? 1 : 0, 1)
                                    : kind             ? random.values(n, 0.9, 1.1)
                                                       : random.values(n));
                    Tile y = Tile::poisoned(out, n);
                    CHECK(run(v, "scan", p, {&y, &x}) == "");
                    Values want(n);
                    for (int64_t row = 0; row < p.outer * p.inner; ++row) {
                        double all = kind;
                        for (int64_t j = 0; j < p.n; ++j) {
                            const int64_t k = p.reverse ? p.n - 1 - j : j;
                            const size_t at =
                                size_t((row / p.inner * p.n + k) * p.inner + row % p.inner);
                            all = kind ? all * x[at] : all + x[at];
                            want[at] = all;
                        }
                    }
                    // bf16 is summed in f32: the error of a sum of p.n terms.
                    check_close("scan", y, want, v.eps() + double(p.n) * v.sum_eps() / 4);
                }
        },
        all_dtypes);
}

TEST_CASE("sums and products of integers wrap, along rows and columns") {
    each_variant(
        [](const Variant& v) {
            const double lowest = -9223372036854775808.0, big = 4611686018427387904.0;
            for (int64_t inner : {1, 2})
                for (int kind : {0, 1}) {
                    const nn_scan_params p{1, 3, inner, kind, 0};
                    Values x, want;
                    for (double value : {big, kind ? 2.0 : big, kind ? 3.0 : big})
                        x.insert(x.end(), size_t(inner), value);
                    for (double value : {big, lowest, kind ? lowest : -big})
                        want.insert(want.end(), size_t(inner), value);
                    Tile in = v.tile(x), y = Tile::poisoned(Dtype::i64, x.size());
                    CHECK(run(v, "scan", p, {&y, &in}) == "");
                    CHECK(y.values() == want);
                }
        },
        {Dtype::i64});
}

}  // namespace
