// PyTorch's gather, its adjoint, and scatter. The indexed axis is in one tile; the others are cut
// like the index, or, with one index for all slices, like x.
#include "kernels/params/gather.h"

#include "engine/ops/op.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

// An index of one axis for a tensor of several holds a position for each slice along the axis.
bool is_shared(const Tensor& index, const Tensor& x) { return index.rank() == 1 && x.rank() > 1; }

Tensor index_for(const Tensor& index, const Tensor& x, const Grid& grid) {
    return is_shared(index, x) ? whole_tensor(index) : retile(index, grid);
}

// Emits a task for every tile of `picked`, which is shaped like the index (or has its size on the
// axis) and cut like `full`, whose axis the values of index refer to.
void emit(const char* kernel, const Tensor& out, const Tensor& in, const Tensor& index,
          const Tensor& full, const Tensor& picked, int axis) {
    const bool shared = is_shared(index, full), updated = std::string(kernel) == "scatter";
    for (int64_t i = 0; i < out.tiles(); ++i) {
        const Dims extent = picked.block(i).extent;
        task(kernel, full.dtype())
            .use({updated ? updates(out, i) : writes(out, i), reads(in, i),
                  reads(index, shared ? 0 : i)})
            .params(nn_gather_params{product(extent, 0, size_t(axis)), full.dim(axis),
                                     extent[size_t(axis)], product(extent, size_t(axis) + 1),
                                     int32_t(index.dtype()), shared})
            .emit(i, out.block(i).extent);
    }
}

// Checks that `index` fits x, and returns the shape of what it picks from x.
Dims picked_shape(const Call& c, const Tensor& x, const Tensor& index, int axis) {
    c.need_ids("index");
    Dims shape = x.shape();
    if (index.rank() == x.rank() || is_shared(index, x))
        shape[size_t(axis)] = index.dim(is_shared(index, x) ? 0 : axis);
    c.need(is_shared(index, x) || index.shape() == shape,
           "x is {}, index is {}; only the size of axis {} may differ", x, index, axis + 1);
    return shape;
}

void run_gather(Call& c) {
    const Tensor &x_in = c.in("x"), &index_in = c.in("index");
    const int axis = c.axis("axis", x_in.rank());
    const int64_t count = picked_shape(c, x_in, index_in, axis)[size_t(axis)];
    const bool shared = is_shared(index_in, x_in);
    const Grid grid = (shared ? x_in : index_in).grid().with(axis, whole(count));
    const Tensor x = retile(x_in, grid.with(axis, whole(x_in.dim(axis))));
    const Tensor y(grid, x.dtype());
    emit("gather", y, x, index_for(index_in, x_in, grid), x, y, axis);
    c.result(y);
}

const OpRegistrar gather = Op{
    .doc = R"(gather(x, index) -> y
y[i, j, k] = x[i, index[i, j, k], k] for axis 2 of three, and so on. index holds 0-based positions
(i32 or i64) and has x's shape except along the axis. An index of one axis picks whole slices of x:
y[i, j, k] = x[i, index[j], k]. Error: an index outside the axis.
    nn.tensor{{10, 20, 30}}:gather(nn.tensor({{2, 0}}, {dtype = "i64"}))  --> {{30, 10}})",
    .attributes = {{"axis", "axis", "-1", "the indexed axis"}},
    .samples = {"{x={3,7}, index={3,4,below=7}}", "{x={5,4}, index={2,4,below=5}, axis=1}",
                "{x={2,5,3}, index={4,below=5}, axis=2}"},
    .run = run_gather,
    .category = "indexing",
};

void run_scatter_add(Call& c) {
    const Tensor& dy_in = c.in("dy");
    const Tensor& index_in = c.in("index");
    const int axis = c.axis("axis", dy_in.rank());
    const bool shared = is_shared(index_in, dy_in);
    c.need_ids("index");
    c.need(shared ? index_in.dim(0) == dy_in.dim(axis) : index_in.shape() == dy_in.shape(),
           "dy is {}, index is {}; they must be equal, or index has the size of axis {} only",
           dy_in, index_in, axis + 1);
    const bool counts = dy_in.dtype() == Dtype::boolean;
    const Tensor dy = whole_axis(counts ? cast(dy_in, Dtype::i64) : dy_in, axis);
    const Tensor x(dy.grid().with(axis, whole(c.integer("size"))), dy.dtype());
    emit("scatter_add", x, dy, index_for(index_in, dy_in, dy.grid()), x, dy, axis);
    c.result(x);
}

const OpRegistrar scatter_add = Op{
    .doc = R"(scatter_add(dy, index) -> x
The adjoint of gather: a tensor with `size` elements along the axis, all 0, to which every
dy[i, j, k] is added at [i, index[i, j, k], k], or at [i, index[j], k] if index has one axis.
Booleans are added as i64. Error: an index outside the axis.
    local index = nn.tensor({0, 2, 0}, {dtype = "i64"})
    nn.scatter_add(nn.tensor{1, 2, 3}, index, {size = 4})  --> {4, 0, 2, 0})",
    .attributes = {{"size", "int", "", "size of the axis of the result"},
                   {"axis", "axis", "-1", "the indexed axis"}},
    .samples = {"{dy={3,4}, index={3,4,below=7}, size=7}",
                "{dy={2,4}, index={2,4,below=5}, size=5, axis=1}",
                "{dy={2,4,3}, index={4,below=5}, size=5, axis=2}"},
    .run = run_scatter_add,
    .category = "indexing",
};

void run_scatter(Call& c) {
    const Tensor &x = c.in("x"), &index = c.in("index");
    const int axis = c.axis("axis", x.rank());
    const Dims shape = picked_shape(c, x, index, axis);
    const Tensor y = copied(x, x.grid().with(axis, whole(x.dim(axis))));
    const Grid grid = y.grid().with(axis, whole(shape[size_t(axis)]));
    Tensor src = c.in("src");
    if (c.given("src")) {
        src = Tensor(grid, x.dtype());
        c.fill(src, "src");
    } else {
        c.need_dtype("src", x.dtype());
        c.need(src.shape() == shape, "src is {} where {} is needed", src, shape);
        src = retile(src, grid);
    }
    emit("scatter", y, src, index_for(index, x, grid), y, src, axis);
    c.result(y);
}

const OpRegistrar scatter = Op{
    .doc = R"(scatter(x, index, src#) -> y
A copy of x in which every src[i, j, k] is stored at [i, index[i, j, k], k] for axis 2 of three, or
at [i, index[j], k] if index has one axis. index holds 0-based positions (i32 or i64); src is shaped
like what gather(x, index) gives, or is a number. If two go to one place, the later one wins. Error:
an index outside the axis.
    local index = nn.tensor({{2}, {0}}, {dtype = "i64"})
    x:scatter(index, 9)  --> {{1, 2, 9}, {9, 5, 6}})",
    .attributes = {{"axis", "axis", "-1", "the indexed axis"}},
    .samples = {"{x={3,7}, index={3,4,below=7}, src={3,4}}",
                "{x={5,4}, index={2,4,below=5}, src=0.5, axis=1}",
                "{x={2,5,3}, index={6,below=5}, src={2,6,3}, axis=2}"},
    .run = run_scatter,
    .category = "indexing",
};

}  // namespace
}  // namespace nn
