// Sorts and order statistics along an axis, which is in one tile, and searches in sorted rows.
#include "kernels/params/sort.h"

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

struct Ranks {
    int64_t first, count;
    bool descending = false, nan_wins = false;
};
struct Found {
    Tensor values, indices;  // with `count` elements along the axis
};

Found find(const Tensor& x_in, int axis, Ranks ranks) {
    const Tensor x = whole_axis(x_in, axis);
    const Grid grid = x.grid().with(axis, whole(ranks.count));
    const Found found{Tensor(grid, x.dtype()), Tensor(grid, Dtype::i64)};
    for (int64_t i = 0; i < x.tiles(); ++i) {
        const Dims extent = x.block(i).extent;
        task("sort", x.dtype())
            .use({writes(found.values, i), writes(found.indices, i), reads(x, i)})
            .params(nn_sort_params{product(extent, 0, size_t(axis)), extent[size_t(axis)],
                                   product(extent, size_t(axis) + 1), ranks.first, ranks.count,
                                   ranks.descending, ranks.nan_wins})
            .emit(i, extent);
    }
    return found;
}

void result(Call& c, const Found& found) {
    c.result(found.values);
    c.result(found.indices);
}

// The results for one rank, without the axis unless `keepdim`.
void result_without(Call& c, const Found& found, int axis) {
    const bool keep = c.flag("keepdim");
    c.result(keep ? found.values : drop_axes(found.values, {axis}));
    c.result(keep ? found.indices : drop_axes(found.indices, {axis}));
}

Found sorted(const Call& c) {
    const Tensor& x = c.in("x");
    const int axis = c.axis("axis", x.rank());
    return find(x, axis, {0, x.dim(axis), c.flag("descending")});
}

// k, from 1 to the size of the axis.
int64_t checked_k(const Call& c, const Tensor& x, int axis) {
    const int64_t k = c.integer("k");
    c.need(k >= 1 && k <= x.dim(axis), "k is {}; axis {} of x {} has {} elements", k, axis + 1, x,
           x.dim(axis));
    return k;
}

const Attribute axis_attribute = {"axis", "axis", "-1", "the axis to sort along"};
const Attribute descending_attribute = {"descending", "bool", "false", "the largest comes first"};
const Attribute keepdim_attribute = {"keepdim", "bool", "false", "keep the axis with size 1"};

const OpRegistrar sort = Op{
    .doc = R"(sort(x) -> values, indices~
The elements along an axis in ascending order, and their 0-based positions in x, as i64. Equal
elements keep their order; NaN is larger than all numbers.
    local values, indices = nn.tensor{3, 1, 2}:sort()
    values, indices  --> {1, 2, 3}, {1, 2, 0})",
    .attributes = {axis_attribute, descending_attribute},
    .samples = {"{x={3,7}}", "{x={3,5,4}, axis=2, descending=true}"},
    .any_rank = true,
    .run = [](Call& c) { result(c, sorted(c)); },
    .category = "sorting",
};

const OpRegistrar argsort = Op{
    .doc = R"(argsort(x) -> indices
The 0-based positions, as i64, that sort x along an axis; see sort.
    nn.tensor{3, 1, 2}:argsort()  --> {1, 2, 0}
    nn.tensor{3, 1, 2}:argsort {descending = true}  --> {0, 2, 1})",
    .attributes = {axis_attribute, descending_attribute},
    .samples = {"{x={3,7}}", "{x={5,4}, axis=1}"},
    .no_gradient = "returns positions, which are piecewise constant",
    .any_rank = true,
    .run = [](Call& c) { c.result(sorted(c).indices); },
    .category = "sorting",
    .kernels = {"sort"},
};

const OpRegistrar topk = Op{
    .doc = R"(topk(x) -> values, indices~
The k largest elements along an axis (the smallest with largest=false), in order, and their 0-based
positions in x, as i64. Of equal elements the first come first; NaN is larger than all numbers.
Error: k is larger than the axis.
    local values, indices = nn.tensor{3, 1, 2}:topk(2)
    values, indices  --> {3, 2}, {0, 2})",
    .attributes = {{"k", "int", "", "number of elements"},
                   axis_attribute,
                   {"largest", "bool", "true", "the largest, or else the smallest"}},
    .samples = {"{x={3,7}, k=2}", "{x={3,5,4}, k=3, axis=2, largest=false}"},
    .any_rank = true,
    .run =
        [](Call& c) {
            const Tensor& x = c.in("x");
            const int axis = c.axis("axis", x.rank());
            result(c, find(x, axis, {0, checked_k(c, x, axis), c.flag("largest")}));
        },
    .category = "sorting",
    .kernels = {"sort"},
};

const OpRegistrar kthvalue = Op{
    .doc = R"(kthvalue(x) -> values, indices~
The k-th smallest element along an axis, and its 0-based position in x, as i64. k counts from 1, as
in PyTorch; NaN is larger than all numbers. Error: k is larger than the axis.
    local value, index = nn.tensor{30, 10, 20}:kthvalue(2)
    value, index  --> 20, 2)",
    .attributes = {{"k", "int", "", "the rank, from 1"}, axis_attribute, keepdim_attribute},
    .samples = {"{x={3,7}, k=3}", "{x={3,5,4}, k=1, axis=2, keepdim=true}"},
    .any_rank = true,
    .run =
        [](Call& c) {
            const Tensor& x = c.in("x");
            const int axis = c.axis("axis", x.rank());
            result_without(c, find(x, axis, {checked_k(c, x, axis) - 1, 1}), axis);
        },
    .category = "sorting",
    .kernels = {"sort"},
};

void run_median(Call& c) {
    const bool all = !c.given("axis");
    const Tensor x = all ? reshape(c.in("x"), {c.in("x").count()}) : c.in("x");
    const int axis = all ? 0 : c.axis("axis", x.rank());
    const Found found = find(x, axis, {(x.dim(axis) - 1) / 2, 1, false, is_float(x.dtype())});
    if (!all) return result_without(c, found, axis);
    c.result(reshape(found.values, c.flag("keepdim") ? Dims(c.in("x").rank(), 1) : Dims()));
}

const OpRegistrar median = Op{
    .doc = R"(median(x) -> values, indices?~
The median of all elements; with an axis, the medians along it and their 0-based positions in x, as
i64. Of an even number it is the lower of the two in the middle. NaN wins. Errors: an axis that x
does not have.
    nn.tensor{1, 4, 2, 3}:median()  --> 2
    local values, indices = x:median(2)
    values, indices  --> {2, 5}, {1, 1})",
    .attributes = {{"axis", "axis", "nil", "the axis; all elements by default"}, keepdim_attribute},
    .samples = {"{x={3,5}}", "{x={3,5,4}, axis=2}", "{x={3,6}, axis=-1, keepdim=true}"},
    .any_rank = true,
    .run = run_median,
    .category = "sorting",
    .kernels = {"sort"},
};

void run_searchsorted(Call& c) {
    const Tensor& sorted_in = c.in("sorted");
    c.need_dtype("values", sorted_in.dtype());
    const Dims shape = c.in("values").shape();
    // One sorted row serves values of any shape.
    const bool one = sorted_in.rank() == 1;
    const Tensor all = one ? reshape(c.in("values"), {1, c.in("values").count()}) : c.in("values");
    const Tensor sorted = rows_of(one ? reshape(sorted_in, {1, sorted_in.count()}) : sorted_in);
    Dims expected = sorted.shape();
    if (all.rank() == sorted.rank()) expected.back() = all.dim(-1);
    c.need(all.shape() == expected,
           "sorted is {}, values is {}; only the size of the last axis may "
           "differ",
           sorted_in, c.in("values"));
    const Tensor values = retile(all, sorted.grid().with(-1, whole(all.dim(-1))));
    const Tensor index(values.grid(), Dtype::i64);
    for (int64_t i = 0; i < index.tiles(); ++i)
        task("searchsorted", sorted.dtype())
            .use({writes(index, i), reads(sorted, i), reads(values, i)})
            .params(nn_searchsorted_params{rows_in(sorted, i), sorted.dim(-1), values.dim(-1),
                                           c.flag("right")})
            .emit(i, index.block(i).extent);
    c.result(one ? reshape(index, shape) : index);
}

const OpRegistrar searchsorted = Op{
    .doc = R"(searchsorted(sorted, values) -> indices
The 0-based position, as i64, where each value would go into its row of `sorted`: before the first
element that is not smaller, or, with right=true, that is larger. Rows, along the last axis, are in
ascending order; a single row serves values of any shape.
    nn.searchsorted(nn.tensor{1, 3, 5}, nn.tensor{3, 9})  --> {1, 3}
    nn.searchsorted(nn.tensor{1, 3, 5}, nn.tensor{3}, {right = true})  --> {2})",
    .attributes = {{"right", "bool", "false", "after equal elements"}},
    .samples = {"{sorted={9}, values={3,5}}", "{sorted={3,6}, values={3,4}, right=true}"},
    .no_gradient = "returns positions, which are piecewise constant",
    .run = run_searchsorted,
    .category = "sorting",
};

}  // namespace
}  // namespace nn
