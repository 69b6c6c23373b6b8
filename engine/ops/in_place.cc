// Ops that write into a tensor: copies into all or part of it, and addition.
#include <unordered_set>

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

// source, or a copy if it shares a tile with x: a task must not read a tile that another changes.
Tensor unshared(const Tensor& source, const Tensor& x) {
    std::unordered_set<const Tile*> mine;
    for (int64_t i = 0; i < x.tiles(); ++i) mine.insert(x.tile(i).get());
    for (int64_t i = 0; i < source.tiles(); ++i)
        if (mine.count(source.tile(i).get())) return copied(source, source.grid());
    return source;
}

void run_copy(Call& c) {
    const Tensor &x = c.in("x"), &source = c.in("source");
    const bool transposed = c.flag("transposed");
    c.need(!transposed || (x.rank() == 2 && source.rank() == 2),
           "x is {}, source is {}; transposed needs two axes", x, source);
    const Dims shape = transposed ? Dims{source.dim(1), source.dim(0)} : source.shape();
    c.need(x.shape() == shape, "x is {}, source is {}; the shapes must be {}", x, source,
           transposed ? "transposes of each other" : "equal");
    if (!transposed && x.dtype() != source.dtype() && x.grid() == source.grid()) {
        cast_into(x, source);
        return c.result(x);
    }
    const Tensor alike = cast(unshared(source, x), x.dtype());
    Region region = whole_region(x.shape());
    if (transposed) region.from = {1, 0};
    copy_region(x, alike, region);
    c.result(x);
}

const OpRegistrar copy_ = Op{
    .doc = R"(copy_(x!, source) -> x
Writes the elements of source, of the same shape, into x and converts their dtype. transposed:
source is (n, m) where x is (m, n). Error: another shape.
    nn.zeros(2):copy_(nn.tensor({1, 2}, {dtype = "i32"}))  --> {1, 2})",
    .attributes = {{"transposed", "bool", "false", "source has its two axes in the other order"}},
    .samples = {"{x={3,5}, source={3,5}}", "{x={3,5}, source={5,3}, transposed=true}"},
    .run = run_copy,
};

void run_assign(Call& c) {
    const Tensor &x = c.in("x"), source = unshared(c.in("source"), x);
    const Dims start = c.ints("start");
    c.need(source.rank() == x.rank() && start.size() == x.rank() && source.dtype() == x.dtype(),
           "x is {} {}, source is {} {}, start has {} indices; ranks and dtypes must agree",
           x.dtype(), x, source.dtype(), source, start.size());
    Region region = whole_region(source.shape());
    for (size_t k = 0; k < x.rank(); ++k) {
        c.need(start[k] >= 1 && start[k] - 1 <= x.shape()[k] - source.shape()[k],
               "source of shape {} at {} does not fit into x of shape {}", source, start, x);
        region.dst_start[k] = start[k] - 1;
    }
    copy_region(x, source, region);
    c.result(x);
}

const OpRegistrar assign_ = Op{
    .doc = R"(assign_(x!, source) -> x
Writes source into the part of x that begins at `start` (1-based, one index an axis). Error: source
reaches beyond x.
    nn.zeros(2, 3):assign_(nn.ones(1, 2), {2, 1})  --> {{0, 0, 0}, {1, 1, 0}})",
    .attributes = {{"start", "ints", "", "position in x of source's first element"}},
    .samples = {"{x={5,6}, source={2,3}, start={2,4}}"},
    .run = run_assign,
};

void run_add(Call& c) {
    const Tensor &x = c.in("x"), &y = c.in("y");
    c.need(x.dtype() == y.dtype(), "x is {}, y is {}; the dtypes must be equal", x.dtype(),
           y.dtype());
    Dims both;
    c.need(broadcast(x.shape(), y.shape(), &both) && both == x.shape(),
           "y of shape {} does not broadcast to x of shape {}", y, x);
    pointwise_into(x, "add", x.dtype(), {x, y.grid() == x.grid() ? y : unshared(y, x)});
    c.result(x);
}

const OpRegistrar add_ = Op{
    .doc = R"(add_(x!, y) -> x
x = x + y in place; y broadcasts to x's shape. Error: y that does not.
    nn.zeros(2, 2):add_(nn.tensor{1, 2})  --> {{1, 2}, {1, 2}})",
    .samples = {"{x={5,7}, y={5,7}}"},
    .run = run_add,
    .kernels = {"add"},
};

}  // namespace
}  // namespace nn
