// The tile rules that compute: pointwise with broadcasting, reductions, rows, and contractions.
#include <algorithm>

#include "engine/error.h"
#include "engine/program.h"
#include "engine/rules.h"
#include "engine/runtime.h"
#include "kernels/team.h"

namespace nn {
namespace {

// The grid of a broadcast result: every axis is cut as in the first operand that has it in full.
Grid broadcast_grid(const Dims& shape, const std::vector<Operand>& operands) {
    Grid grid = Grid::whole(shape);
    for (size_t axis = 0; axis < shape.size(); ++axis)
        for (const Operand& o : operands) {
            const size_t extra = o.tensor ? shape.size() - o.tensor.rank() : shape.size();
            if (axis < extra || o.tensor.shape()[axis - extra] != shape[axis]) continue;
            grid.axes[axis] = o.tensor.grid().axes[axis - extra];
            break;
        }
    return grid;
}

// The operand cut like the result on the axes that it has in full.
Tensor cut_alike(const Tensor& x, const Grid& grid) {
    Grid mine = x.grid();
    const size_t extra = grid.rank() - x.rank();
    for (size_t axis = 0; axis < x.rank(); ++axis)
        if (x.shape()[axis] == grid.axes[axis + extra].back())
            mine.axes[axis] = grid.axes[axis + extra];
    return retile(x, mine);
}

int64_t broadcast_tile(const Tensor& x, const Dims& index) {
    Dims mine;
    const size_t extra = index.size() - x.rank();
    for (size_t axis = 0; axis < x.rank(); ++axis)
        mine.push_back(x.grid().tiles(axis) == 1 ? 0 : index[axis + extra]);
    return x.grid().number(mine);
}

// Strides of an operand's tile as seen from the result's tile: 0 where it is broadcast.
void fill_strides(const Block& block, const Dims& extent, int64_t* strides) {
    const Dims own = row_major_strides(block.extent);
    const size_t extra = extent.size() - own.size();
    for (size_t axis = 0; axis < extent.size(); ++axis)
        strides[axis] = axis < extra || block.extent[axis - extra] == 1 ? 0 : own[axis - extra];
}

}  // namespace

Tensor pointwise(const char* kernel, Dtype kernel_dtype, Dtype out,
                 const std::vector<Operand>& operands) {
    Dims shape;
    for (const Operand& o : operands)
        if (o.tensor) {
            const Dims before = shape;
            if (!broadcast(before, o.tensor.shape(), &shape))
                fail(
                    "%s: shapes %s and %s do not broadcast: sizes must be equal or 1, counted from "
                    "the last axis",
                    current_op(), to_string(before).c_str(), to_string(o.tensor.shape()).c_str());
        }
    const Tensor result(broadcast_grid(shape, operands), out);
    pointwise_into(result, kernel, kernel_dtype, operands);
    return result;
}

void pointwise_into(const Tensor& result, const char* kernel, Dtype kernel_dtype,
                    const std::vector<Operand>& operands) {
    const Dims& shape = result.shape();
    const Grid& grid = result.grid();
    std::vector<Operand> cut = operands;
    for (Operand& o : cut)
        if (o.tensor) o.tensor = cut_alike(o.tensor, grid);
    for (int64_t i = 0; i < result.tiles(); ++i) {
        const Block block = result.block(i);
        const Dims index = grid.index(i);
        nn_pointwise_params params{};
        params.ndim = int64_t(shape.size());
        std::copy(block.extent.begin(), block.extent.end(), params.extent);
        TaskBuilder builder = task(kernel, kernel_dtype);
        builder.use(writes(result.tile(i)));
        for (size_t k = 0; k < cut.size(); ++k) {
            if (!cut[k].tensor) {
                params.scalar_mask |= 1 << k;
                params.scalar[k] = cut[k].number;
                builder.use(absent());
                continue;
            }
            const int64_t from = broadcast_tile(cut[k].tensor, index);
            fill_strides(cut[k].tensor.block(from), block.extent, params.stride[k]);
            builder.use(reads(cut[k].tensor.tile(from)));
        }
        builder.params(params).flops(double(block.count())).tile(i, block.extent).emit();
    }
}

namespace {

struct Group {
    int from, to;  // axes [from, to)
};

// Neighbouring axes are reduced together.
std::vector<Group> groups_of(const std::vector<int>& axes) {
    std::vector<Group> groups;
    for (int axis : axes)
        if (!groups.empty() && groups.back().to == axis)
            ++groups.back().to;
        else
            groups.push_back({axis, axis + 1});
    return groups;
}

// One group, kept as axes of size 1.
Tensor reduce_group(const Tensor& x, Group group, ReduceKind kind, double scale) {
    Grid grid = x.grid();
    for (int axis = group.from; axis < group.to; ++axis) grid.axes[size_t(axis)] = whole(1);
    const bool sums = kind == reduce_sum || kind == reduce_product;
    Tensor out(grid, sums ? accumulator(x.dtype()) : x.dtype());
    for (int64_t i = 0; i < x.tiles(); ++i) {
        Dims at = x.grid().index(i);
        bool first = true;
        for (int axis = group.from; axis < group.to; ++axis) {
            first &= at[size_t(axis)] == 0;
            at[size_t(axis)] = 0;
        }
        const Block block = x.block(i);
        const int64_t to = grid.number(at);
        task("reduce", x.dtype())
            .use(first ? writes(out.tile(to)) : updates(out.tile(to)))
            .use(reads(x.tile(i)))
            .params(nn_reduce_params{product(block.extent, 0, size_t(group.from)),
                                     product(block.extent, size_t(group.from), size_t(group.to)),
                                     product(block.extent, size_t(group.to)), scale, int32_t(kind),
                                     first})
            .flops(double(block.count()))
            .tile(i, block.extent)
            .emit();
    }
    return out;
}

}  // namespace

Tensor reduce(const Tensor& x, const std::vector<int>& axes, ReduceKind kind, bool keepdim,
              double scale) {
    Tensor out = x;
    std::vector<Group> groups = groups_of(axes);
    for (size_t g = groups.size(); g-- > 0;)
        out = reduce_group(out, groups[g], kind, g == 0 ? scale : 1);
    if (x.dtype() == Dtype::bf16) out = cast(out, Dtype::bf16);
    if (keepdim) return out;
    Dims shape;
    for (size_t axis = 0; axis < x.rank(); ++axis)
        if (std::find(axes.begin(), axes.end(), int(axis)) == axes.end())
            shape.push_back(x.shape()[axis]);
    return reshape(out, shape);
}

Tensor rows_of(const Tensor& x) {
    if (x.rank() == 0) fail("%s: needs a tensor of at least one axis", current_op());
    return whole_axis(x, int(x.rank()) - 1);
}

int64_t rows_in(const Tensor& x, int64_t tile) {
    const Block block = x.block(tile);
    return product(block.extent, 0, block.extent.size() - 1);
}

namespace {

// Where the three indices of a contraction lie in the two operands.
struct MatmulAxes {
    size_t batch, a_m, a_k, b_k, b_n;
};

MatmulAxes matmul_axes(const Tensor& a, const MatmulOptions& o) {
    const size_t r = a.rank();
    return {r - 2, o.trans_a ? r - 1 : r - 2, o.trans_a ? r - 2 : r - 1, o.trans_b ? r - 1 : r - 2,
            o.trans_b ? r - 2 : r - 1};
}

// Both operands cut alike: batch as in A, k as in the larger one, m and n as in the tensor
// accumulated into, where there is one.
void cut_for_matmul(Tensor& a, Tensor& b, const MatmulAxes& ax, const MatmulOptions& o) {
    Grid ga = a.grid(), gb = b.grid();
    if (o.into) {
        ga.axes[ax.a_m] = o.into.grid().axes[ax.batch];
        gb.axes[ax.b_n] = o.into.grid().axes[ax.batch + 1];
    }
    if (a.dtype() == Dtype::bf16 && !o.wide)
        ga.axes[ax.a_k] = whole(a.shape()[ax.a_k]);  // keeps the sum in float
    else if (a.count() < b.count())
        ga.axes[ax.a_k] = gb.axes[ax.b_k];  // a few rows rather than a weight are copied
    for (size_t axis = 0; axis < ax.batch; ++axis) gb.axes[axis] = ga.axes[axis];
    gb.axes[ax.b_k] = ga.axes[ax.a_k];
    a = retile(a, ga);
    b = retile(b, gb);
}

nn_gemm_params gemm_params(const Block& ca, const Block& cb, const MatmulAxes& ax,
                           const MatmulOptions& o) {
    nn_gemm_params p{};
    p.m = ca.extent[ax.a_m], p.k = ca.extent[ax.a_k], p.n = cb.extent[ax.b_n];
    p.lda = o.trans_a ? p.m : p.k, p.ldb = o.trans_b ? p.k : p.n, p.ldc = p.n;
    p.batch = product(ca.extent, 0, ax.batch);
    p.stride_a = p.m * p.k, p.stride_b = p.k * p.n, p.stride_c = p.m * p.n;
    p.trans_a = o.trans_a, p.trans_b = o.trans_b;
    p.tf32 = tf32_allowed();
    p.alpha = 1;
    p.wide = o.wide;
    return p;
}

}  // namespace

Tensor matmul(const Tensor& a_in, const Tensor& b_in, const MatmulOptions& o) {
    Tensor a = a_in, b = b_in;
    const MatmulAxes ax = matmul_axes(a, o);
    cut_for_matmul(a, b, ax, o);
    Grid grid;
    for (size_t axis = 0; axis < ax.batch; ++axis) grid.axes.push_back(a.grid().axes[axis]);
    grid.axes.push_back(a.grid().axes[ax.a_m]);
    grid.axes.push_back(b.grid().axes[ax.b_n]);
    const Tensor c = o.into ? o.into : Tensor(grid, o.wide ? accumulator(a.dtype()) : a.dtype());
    if (o.pre) *o.pre = Tensor(grid, a.dtype());
    const Tensor bias = o.bias ? recut(o.bias, 0, b.grid().axes[ax.b_n]) : Tensor();
    const Tensor slope_at = o.gelu_of ? retile(o.gelu_of, c.grid()) : Tensor();
    if (o.sums)
        *o.sums = Tensor(Grid({cut_every(c.grid().tiles(0), 1), c.grid().axes[1]}),
                         accumulator(a.dtype()));
    const int64_t k_tiles = a.grid().tiles(ax.a_k);
    for (int64_t i = 0; i < c.tiles(); ++i) {
        const Dims at = c.grid().index(i);
        for (int64_t k = 0; k < k_tiles; ++k) {
            Dims at_a = at, at_b = at;
            at_a[ax.a_m] = at[ax.batch], at_a[ax.a_k] = k;
            at_b[ax.b_k] = k, at_b[ax.b_n] = at[ax.batch + 1];
            const int64_t from_a = a.grid().number(at_a), from_b = b.grid().number(at_b);
            nn_gemm_params p = gemm_params(a.block(from_a), b.block(from_b), ax, o);
            const bool first = k == 0 && !o.into, last = k == k_tiles - 1;
            p.beta = first ? 0 : 1;
            if (last) p.epilogue = slope_at ? 3 : !bias ? 0 : o.gelu ? 2 : 1;
            TaskBuilder product = task(p.epilogue == 3 ? "gemm_dgelu" : "gemm", a.dtype());
            product.use(first ? writes(c.tile(i)) : updates(c.tile(i)))
                .use({reads(a.tile(from_a)), reads(b.tile(from_b))});
            if (p.epilogue == 3)
                product.use({o.sums ? writes(o.sums->tile(i)) : absent(), reads(slope_at.tile(i))});
            else
                product.use(p.epilogue ? reads(bias.tile(at[ax.batch + 1])) : absent())
                    .use(p.epilogue == 2 && o.pre ? writes(o.pre->tile(i)) : absent());
            product.params(p)
                .flops(2.0 * double(p.m) * double(p.n) * double(p.k) * double(p.batch))
                .splits(p.m <= team::few_rows)
                .tile(i, c.block(i).extent)
                .emit();
        }
    }
    return c;
}

}  // namespace nn
