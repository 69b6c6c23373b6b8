// Reductions over axes.
#include "kernels/params/reduce.h"

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

template <ReduceKind kind> void run_reduce(Call& c) {
    const Tensor& x = c.in("x");
    c.result_of(x, reduce(x, c.axes("axis", x.rank()), kind, c.flag("keepdim")));
}

void run_mean(Call& c) {
    c.need_float("x");
    const Tensor& x = c.in("x");
    const std::vector<int> axes = c.axes("axis", x.rank());
    double count = 1;
    for (int axis : axes) count *= double(x.dim(axis));
    c.result_of(x, reduce(x, axes, reduce_sum, c.flag("keepdim"), 1 / count));
}

Op reduction(void (*run)(Call&), std::vector<std::string> samples, const char* doc) {
    return Op{.doc = doc,
              .attributes = {{"axis", "axes", "nil", "an axis or a list of axes; all by default"},
                             {"keepdim", "bool", "false", "keep reduced axes with size 1"}},
              .samples = std::move(samples),
              .any_rank = true,
              .run = run,
              .category = "reductions",
              .kernels = {"reduce"}};
}

const OpRegistrar sum = reduction(
    run_reduce<reduce_sum>,
    {"{x={3,5}}", "{x={3,5,4}, axis=2}", "{x={3,5,4}, axis={1,3}, keepdim=true}"}, R"(sum(x) -> y
Sum over axes; integers and booleans are summed in i64.
    x:sum {axis = 2}  --> {6, 15})");

const OpRegistrar mean = reduction(run_mean, {"{x={3,5}}", "{x={3,5,4}, axis=-1}"}, R"(mean(x) -> y
Arithmetic mean over axes, of floats.
    x:mean {axis = 1}  --> {2.5, 3.5, 4.5})");

const OpRegistrar amax =
    reduction(run_reduce<reduce_max>, {"{x={3,5}}", "{x={3,5,4}, axis=2}"}, R"(max(x) -> y
Largest element over axes; NaN wins. Ties share the gradient equally.
    x:max {axis = 2}  --> {3, 6})");

const OpRegistrar amin =
    reduction(run_reduce<reduce_min>, {"{x={3,5}}", "{x={3,5,4}, axis=1}"}, R"(min(x) -> y
Smallest element over axes; NaN wins. Ties share the gradient equally.
    x:min {axis = 2}  --> {1, 4})");

const OpRegistrar prod =
    reduction(run_reduce<reduce_product>,
              {"{x={3,5,lo=0.5,hi=1.5}}", "{x={3,5,4,lo=0.5,hi=1.5}, axis=2}"}, R"(prod(x) -> y
Product over axes. The gradient is the product of the other elements, zeros included.
    nn.tensor{2, 3, 4}:prod()  --> 24)");

// Tiles are visited in order, so that the first of equal elements wins.
template <ReduceKind kind> void run_arg(Call& c) {
    const Tensor& in = c.in("x");
    const bool all = !c.given("axis");
    const Tensor x = all ? reshape(in, {in.count()}) : in;
    const size_t axis = all ? 0 : size_t(c.axis("axis", x.rank()));
    const Grid grid = x.grid().with(int(axis), whole(1));
    const Tensor index(grid, Dtype::i64), value(grid, x.dtype());
    for (int64_t i = 0; i < x.tiles(); ++i) {
        Dims at = x.grid().index(i);
        const bool first = at[axis] == 0;
        at[axis] = 0;
        const int64_t to = grid.number(at);
        const Block block = x.block(i);
        task("argreduce", x.dtype())
            .use({adds(index, to, first), adds(value, to, first), reads(x, i)})
            .params(nn_argreduce_params{product(block.extent, 0, axis), block.extent[axis],
                                        product(block.extent, axis + 1), block.start[axis], kind,
                                        first})
            .emit(i, block.extent);
    }
    if (c.flag("keepdim"))
        c.result(all ? reshape(index, Dims(in.rank(), 1)) : index);
    else
        c.result(drop_axes(index, {int(axis)}));
}

Op arg_reduction(void (*run)(Call&), std::vector<std::string> samples, const char* doc) {
    Op op = reduction(run, std::move(samples), doc);
    op.attributes[0] = {"axis", "axis", "nil", "the axis to search; all elements by default"};
    op.no_gradient = "returns an index, which is piecewise constant";
    op.kernels = {"argreduce"};
    return op;
}

const OpRegistrar argmax = arg_reduction(
    run_arg<reduce_max>, {"{x={3,7}}", "{x={3,7}, axis=-1}", "{x={3,5,4}, axis=2, keepdim=true}"},
    R"(argmax(x) -> index
0-based position of the first largest element along an axis, as i64: it is data, like a token id.
Without an axis, the position in x as one row.
    nn.tensor{{1, 5, 2}, {7, 0, 7}}:argmax(2)  --> {1, 0}
    nn.tensor{{1, 5, 2}, {7, 0, 7}}:argmax()  --> 3)");

const OpRegistrar argmin =
    arg_reduction(run_arg<reduce_min>, {"{x={3,7}, axis=2}"}, R"(argmin(x) -> index
0-based position of the first smallest element along an axis, as i64; see argmax.
    nn.tensor{{1, 5, 2}, {7, 0, 7}}:argmin(2)  --> {0, 1})");

}  // namespace
}  // namespace nn
