#include "engine/rules/matmul.h"

#include "engine/graph/builder.h"
#include "engine/graph/context.h"
#include "engine/rules/copy.h"
#include "kernels/team.h"

namespace nn {
namespace {

// The axes of the batch and of the indices m, k and n in the two operands.
struct MatmulAxes {
    size_t batch, a_m, a_k, b_k, b_n;
};

MatmulAxes matmul_axes(const Tensor& a, const MatmulOptions& o) {
    const size_t r = a.rank();
    return {r - 2, o.trans_a ? r - 1 : r - 2, o.trans_a ? r - 2 : r - 1, o.trans_b ? r - 1 : r - 2,
            o.trans_b ? r - 2 : r - 1};
}

// Cuts both operands alike: batch as in A, k as in the larger operand, m and n as in `into`, if
// given.
void cut_for_matmul(Tensor& a, Tensor& b, const MatmulAxes& ax, const MatmulOptions& o) {
    Grid ga = a.grid(), gb = b.grid();
    if (o.into) {
        ga.axes[ax.a_m] = o.into.grid().axes[ax.batch];
        gb.axes[ax.b_n] = o.into.grid().axes[ax.batch + 1];
    }
    if (a.dtype() == Dtype::bf16 && !o.wide)
        ga.axes[ax.a_k] = whole(a.shape()[ax.a_k]);  // keeps the sum in float
    else if (a.count() < b.count())
        ga.axes[ax.a_k] = gb.axes[ax.b_k];  // copies a few rows, not a weight
    for (size_t axis = 0; axis < ax.batch; ++axis) gb.axes[axis] = ga.axes[axis];
    gb.axes[ax.b_k] = ga.axes[ax.a_k];
    a = retile(a, ga);
    b = retile(b, gb);
}

}  // namespace

nn_gemm_params gemm_params(int64_t m, int64_t n, int64_t k, const MatmulOptions& o) {
    nn_gemm_params p{};
    p.m = m, p.n = n, p.k = k, p.batch = 1, p.alpha = 1;
    p.lda = o.trans_a ? m : k, p.ldb = o.trans_b ? k : n, p.ldc = n;
    p.trans_a = o.trans_a, p.trans_b = o.trans_b, p.wide = o.wide, p.tf32 = settings().tf32;
    return p;
}

Tensor matmul(const Tensor& a_in, const Tensor& b_in, const MatmulOptions& o) {
    Tensor a = a_in, b = b_in;
    const MatmulAxes ax = matmul_axes(a, o);
    cut_for_matmul(a, b, ax, o);
    Grid grid = a.grid();
    grid.axes[ax.batch] = a.grid().axes[ax.a_m], grid.axes[ax.batch + 1] = b.grid().axes[ax.b_n];
    const Tensor c = o.into ? o.into : Tensor(grid, o.wide ? accumulator(a.dtype()) : a.dtype());
    if (o.pre) *o.pre = Tensor(grid, a.dtype());
    const Tensor bias = o.bias ? recut(o.bias, 0, b.grid().axes[ax.b_n]) : Tensor();
    const int64_t k_tiles = a.grid().tiles(ax.a_k);
    for (int64_t i = 0; i < c.tiles(); ++i) {
        const Dims at = c.grid().index(i);
        for (int64_t k = 0; k < k_tiles; ++k) {
            Dims at_a = at, at_b = at;
            at_a[ax.a_m] = at[ax.batch], at_a[ax.a_k] = k;
            at_b[ax.b_k] = k, at_b[ax.b_n] = at[ax.batch + 1];
            const int64_t from_a = a.grid().number(at_a), from_b = b.grid().number(at_b);
            const Dims in_a = a.block(from_a).extent, in_b = b.block(from_b).extent;
            nn_gemm_params p = gemm_params(in_a[ax.a_m], in_b[ax.b_n], in_a[ax.a_k], o);
            p.batch = product(in_a, 0, ax.batch);
            p.stride_a = p.m * p.k, p.stride_b = p.k * p.n, p.stride_c = p.m * p.n;
            const bool first = k == 0 && !o.into, last = k == k_tiles - 1;
            p.beta = first ? 0 : 1;
            if (last) p.epilogue = !bias ? 0 : o.gelu ? 2 : 1;
            task("gemm", a.dtype())
                .use({adds(c, i, first), reads(a, from_a), reads(b, from_b)})
                .use(p.epilogue ? reads(bias, at[ax.batch + 1]) : absent())
                .use(p.epilogue == 2 && o.pre ? writes(*o.pre, i) : absent())
                .params(p)
                .splits(p.m <= team::few_rows)
                .emit(i, c.block(i).extent, 2.0 * double(p.k));
        }
    }
    return c;
}

}  // namespace nn
