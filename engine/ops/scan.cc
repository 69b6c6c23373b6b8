// Running sums and products along an axis, which is in one tile.
#include "kernels/params/scan.h"

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

template <int kind> void run_scan(Call& c) {
    const int axis = c.axis("axis", c.in("x").rank());
    const Tensor x = whole_axis(c.in("x"), axis);
    const Tensor y(x.grid(), is_float(x.dtype()) ? x.dtype() : Dtype::i64);
    for (int64_t i = 0; i < x.tiles(); ++i) {
        const Dims extent = x.block(i).extent;
        task("scan", x.dtype())
            .use({writes(y, i), reads(x, i)})
            .params(nn_scan_params{product(extent, 0, size_t(axis)), extent[size_t(axis)],
                                   product(extent, size_t(axis) + 1), kind, c.flag("reverse")})
            .emit(i, extent, 1);
    }
    c.result(y);
}

Op running(void (*run)(Call&), std::vector<std::string> samples, const char* doc) {
    return Op{.doc = doc,
              .attributes = {{"axis", "axis", "-1", "the axis to run along"},
                             {"reverse", "bool", "false", "run from the end to the start"}},
              .samples = std::move(samples),
              .any_rank = true,
              .run = run,
              .category = "reductions",
              .kernels = {"scan"}};
}

const OpRegistrar cumsum =
    running(run_scan<0>, {"{x={3,5}}", "{x={3,5,4}, axis=2, reverse=true}"}, R"(cumsum(x) -> y
Running sums along an axis: y[i] = x[1] + ... + x[i]. Those of integers and booleans are i64.
    x:cumsum()  --> {{1, 3, 6}, {4, 9, 15}}
    x:cumsum {axis = 1}  --> {{1, 2, 3}, {5, 7, 9}})");

const OpRegistrar cumprod =
    running(run_scan<1>, {"{x={3,5,lo=0.5,hi=1.5}}", "{x={3,5,4,lo=0.5,hi=1.5}, axis=2}"},
            R"(cumprod(x) -> y
Running products along an axis: y[i] = x[1] ... x[i]. Those of integers and booleans are i64.
    x:cumprod()  --> {{1, 2, 6}, {4, 20, 120}})");

}  // namespace
}  // namespace nn
