// Ops that rearrange: views share tiles where the grids allow and copy where they do not
// (engine/tensor.h says how that stays invisible).
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

const OpRegistrar reshape_op = Op{
    .name = "reshape",
    .doc =
        "reshape(x, shape) -> y\nThe same elements in row-major order under another shape; one "
        "size may be -1."
        " Error: another number of elements."
        "\n    x:reshape(3, -1)  --> {{1, 2}, {3, 4}, {5, 6}}",
    .inputs = {"x"},
    .attributes = {{"shape", "ints", "", "the new sizes; -1 for the one to work out"}},
    .samples = {"{x={4,6}, shape={2,2,6}}", "{x={3,4,5}, shape={12,-1}}", "{x={3,4,5}, shape={60}}",
                "{x={6,4}, shape={3,8}}"},
    .run =
        [](Call& c) {
            const Tensor& x = c.in("x");
            Dims shape = c.ints("shape");
            const int64_t unknown = std::count(shape.begin(), shape.end(), -1);
            c.need(unknown <= 1, "shape %s has more than one -1", to_string(shape).c_str());
            const int64_t known = product(shape) * (unknown ? -1 : 1);
            if (unknown && known > 0)
                std::replace(shape.begin(), shape.end(), int64_t(-1), x.count() / known);
            const bool positive =
                std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size > 0; });
            c.need(positive && product(shape) == x.count(),
                   "x of shape %s has %lld elements, which %s does not hold",
                   to_string(x.shape()).c_str(), (long long)x.count(),
                   to_string(c.ints("shape")).c_str());
            c.result_of(x, reshape(x, shape));
        },
    .category = "views",
};

const OpRegistrar permute_op = Op{
    .name = "permute",
    .doc =
        "permute(x, order) -> y\nAxis i of y is axis order[i] of x."
        "\n    x:permute(2, 1)  --> {{1, 4}, {2, 5}, {3, 6}}",
    .inputs = {"x"},
    .attributes = {{"order", "ints", "", "every axis of x once"}},
    .samples = {"{x={3,4,5}, order={3,1,2}}", "{x={3,4}, order={2,1}}",
                "{x={2,3,4,5}, order={1,3,2,4}}"},
    .run =
        [](Call& c) {
            const Tensor& x = c.in("x");
            const Dims given = c.ints("order");
            c.axes("order", x.rank());  // checks the range and that none comes twice
            c.need(given.size() == x.rank(), "order names %zu axes; x of shape %s has %zu",
                   given.size(), to_string(x.shape()).c_str(), x.rank());
            std::vector<int> order;
            for (int64_t axis : given)
                order.push_back(int(axis > 0 ? axis - 1 : axis + int64_t(x.rank())));
            c.result(permute(x, order));
        },
    .category = "views",
};

const OpRegistrar slice_op = Op{
    .name = "slice",
    .doc =
        "slice(x, axis, first, last) -> y\nElements first to last (both included, 1-based, "
        "negative from the end) of an axis."
        " Error: an index outside the axis."
        "\n    x:slice(2, 2, 3)  --> {{2, 3}, {5, 6}}",
    .inputs = {"x"},
    .attributes = {{"axis", "axis", "", "the axis to cut"},
                   {"first", "int", "", "first index kept"},
                   {"last", "int", "-1", "last index kept"}},
    .samples = {"{x={7,4}, axis=1, first=2, last=5}", "{x={3,9}, axis=-1, first=-4}"},
    .run =
        [](Call& c) {
            const Tensor& x = c.in("x");
            const int axis = c.axis("axis", x.rank());
            const int64_t size = x.dim(axis);
            const auto from_end = [&](int64_t i) { return i < 0 ? i + size + 1 : i; };
            const int64_t first = from_end(c.integer("first")), last = from_end(c.integer("last"));
            c.need(1 <= first && first <= last && last <= size,
                   "elements %lld to %lld of an axis of size %lld, which count from 1 (x is %s)",
                   (long long)c.integer("first"), (long long)c.integer("last"), (long long)size,
                   to_string(x.shape()).c_str());
            c.result(slice(x, axis, first - 1, last - first + 1));
        },
    .category = "views",
};

const OpRegistrar cat = Op{
    .name = "cat",
    .doc =
        "cat(tensors, {axis=1}) -> y\nThe tensors one after the other along an axis; other sizes "
        "must agree."
        "\n    nn.cat({nn.zeros(1, 2), nn.ones(2, 2)}, {axis = 1})  --> {{0, 0}, {1, 1}, {1, 1}}",
    .inputs = {"tensors*"},
    .attributes = {{"axis", "axis", "1", "the axis to join along"}},
    .samples = {"{tensors={{3,4},{2,4}}, axis=1}", "{tensors={{3,4},{3,1},{3,2}}, axis=-1}"},
    .run =
        [](Call& c) {
            const Tensor& first = c.all()[0];
            const int axis = c.axis("axis", first.rank());
            Grid grid = first.grid();
            Cuts& cuts = grid.axes[size_t(axis)];
            for (size_t i = 1; i < c.all().size(); ++i) {
                const Tensor& t = c.all()[i];
                Dims expected = first.shape();
                if (t.rank() == first.rank()) expected[size_t(axis)] = t.dim(axis);
                c.need(
                    t.shape() == expected && t.dtype() == first.dtype(),
                    "tensor %zu is %s %s, tensor 1 is %s %s; only the size of axis %d may differ",
                    i + 1, dtype_name(t.dtype()), to_string(t.shape()).c_str(),
                    dtype_name(first.dtype()), to_string(first.shape()).c_str(), axis + 1);
                const int64_t base = cuts.back();
                const Cuts& mine = t.grid().axes[size_t(axis)];
                for (size_t k = 1; k < mine.size(); ++k) cuts.push_back(base + mine[k]);
            }
            Tensor y(grid, first.dtype());
            int64_t at = 0;
            for (const Tensor& t : c.all()) {
                Region region{Dims(t.rank(), 0), Dims(t.rank(), 0), t.shape(), {}};
                for (size_t k = 0; k < t.rank(); ++k) region.from.push_back(int(k));
                region.dst_start[size_t(axis)] = at;
                copy_region(y, t, region);
                at += t.dim(axis);
            }
            c.result(y);
        },
    .category = "views",
};

const OpRegistrar expand_op = Op{
    .name = "expand",
    .doc =
        "expand(x, shape) -> y\nx broadcast to a shape, as arithmetic would do it."
        " Error: a size of x that is neither 1 nor that of the shape."
        "\n    nn.tensor{{1}, {2}}:expand(2, 3)  --> {{1, 1, 1}, {2, 2, 2}}",
    .inputs = {"x"},
    .attributes = {{"shape", "ints", "", "the sizes to broadcast to"}},
    .samples = {"{x={3,1}, shape={2,3,4}}", "{x={4}, shape={3,4}}"},
    .run =
        [](Call& c) {
            const Tensor& x = c.in("x");
            Dims shape = c.ints("shape"), both;
            c.need(broadcast(x.shape(), shape, &both) && both == shape,
                   "x of shape %s does not broadcast to %s", to_string(x.shape()).c_str(),
                   to_string(shape).c_str());
            c.result_of(x, expand(x, shape));
        },
    .category = "views",
};

const OpRegistrar to = Op{
    .name = "to",
    .doc =
        "to(x, dtype) -> y\nx in another dtype; floats to integers truncate towards zero, to bool "
        "is x ~= 0."
        "\n    nn.tensor{1.7, -1.7}:to \"i32\"  --> {1, -1}",
    .inputs = {"x"},
    .attributes = {{"dtype", "dtype", "", "f32, f64, bf16, i32, i64, u8 or bool"}},
    .samples = {"{x={3,5}, dtype='f64'}", "{x={3,5}, dtype='bf16'}", "{x={3,5}, dtype='i32'}"},
    .run = [](Call& c) { c.result_of(c.in("x"), cast(c.in("x"), c.dtype("dtype"))); },
    .category = "views",
};

const OpRegistrar clone = Op{
    .name = "clone",
    .doc =
        "clone(x) -> y\nA copy with tiles of its own."
        "\n    x:clone():fill_(0)"
        "\n    x:sum()  --> 21",
    .inputs = {"x"},
    .samples = {"{x={3,5}}"},
    .run =
        [](Call& c) {
            Tensor y(c.in("x").grid(), c.in("x").dtype());
            copy_into(y, c.in("x"));
            c.result(y);
        },
    .category = "views",
};

// source, or a copy of it where it shares a tile with x: reading and writing must not mix.
Tensor apart(const Tensor& source, const Tensor& x) {
    std::unordered_set<const Tile*> mine;
    for (int64_t i = 0; i < x.tiles(); ++i) mine.insert(x.tile(i).get());
    for (int64_t i = 0; i < source.tiles(); ++i)
        if (mine.count(source.tile(i).get())) {
            Tensor copy(source.grid(), source.dtype());
            copy_into(copy, source);
            return copy;
        }
    return source;
}

const OpRegistrar copy_ = Op{
    .name = "copy_",
    .doc =
        "copy_(x, source, {transposed=false}) -> x\nWrites the elements of source, of the same "
        "shape, into x; dtypes are converted. transposed: source is (n, m) where x is (m, n)."
        " Error: another shape."
        "\n    nn.zeros(2):copy_(nn.tensor({1, 2}, {dtype = \"i32\"}))  --> {1, 2}",
    .inputs = {"x", "source"},
    .attributes = {{"transposed", "bool", "false", "source has its two axes in the other order"}},
    .samples = {"{x={3,5}, source={3,5}}", "{x={3,5}, source={5,3}, transposed=true}"},
    .no_gradient = "changes x in place",
    .run =
        [](Call& c) {
            c.need_owner("x");
            const Tensor &x = c.in("x"), &source = c.in("source");
            const bool transposed = c.flag("transposed");
            c.need(!transposed || (x.rank() == 2 && source.rank() == 2),
                   "x is %s, source is %s; transposed needs two axes", to_string(x.shape()).c_str(),
                   to_string(source.shape()).c_str());
            const Dims shape = transposed ? Dims{source.dim(1), source.dim(0)} : source.shape();
            c.need(x.shape() == shape, "x is %s, source is %s; the shapes must be %s",
                   to_string(x.shape()).c_str(), to_string(source.shape()).c_str(),
                   transposed ? "each other's transposed" : "equal");
            const Tensor alike = cast(apart(source, x), x.dtype());
            if (transposed)
                copy_region(x, alike, {{0, 0}, {0, 0}, x.shape(), {1, 0}});
            else
                copy_into(x, alike);
            x.changed();
            c.result(x);
        },
    .category = "in place",
};

const OpRegistrar assign_ = Op{
    .name = "assign_",
    .doc =
        "assign_(x, source, start) -> x\nWrites source into the part of x that begins at `start` "
        "(1-based, one index an axis)."
        " Error: source reaches beyond x."
        "\n    nn.zeros(2, 3):assign_(nn.ones(1, 2), {2, 1})  --> {{0, 0, 0}, {1, 1, 0}}",
    .inputs = {"x", "source"},
    .attributes = {{"start", "ints", "", "where source's first element goes"}},
    .samples = {"{x={5,6}, source={2,3}, start={2,4}}"},
    .no_gradient = "changes x in place",
    .run =
        [](Call& c) {
            c.need_owner("x");
            const Tensor &x = c.in("x"), source = apart(c.in("source"), x);
            Dims start = c.ints("start");
            c.need(
                source.rank() == x.rank() && start.size() == x.rank() &&
                    source.dtype() == x.dtype(),
                "x is %s %s, source is %s %s, start has %zu indices; ranks and dtypes must agree",
                dtype_name(x.dtype()), to_string(x.shape()).c_str(), dtype_name(source.dtype()),
                to_string(source.shape()).c_str(), start.size());
            Region region{{}, Dims(x.rank(), 0), source.shape(), {}};
            for (size_t k = 0; k < x.rank(); ++k) {
                c.need(start[k] >= 1 && start[k] - 1 <= x.shape()[k] - source.shape()[k],
                       "source of shape %s at %s does not fit into x of shape %s",
                       to_string(source.shape()).c_str(), to_string(start).c_str(),
                       to_string(x.shape()).c_str());
                region.dst_start.push_back(start[k] - 1);
                region.from.push_back(int(k));
            }
            copy_region(x, source, region);
            x.changed();
            c.result(x);
        },
    .category = "in place",
};

}  // namespace
}  // namespace nn
