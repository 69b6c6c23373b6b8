#include "engine/rules/view.h"

#include <algorithm>

#include "engine/rules/copy.h"

namespace nn {
namespace {

// The axes of the old and the new shape form groups of equal products. Within a group a tile is
// contiguous only if its extents are 1, ..., 1, any, whole, ..., whole. Returns the cuts of the
// group as one axis, or none if its tiles are not contiguous.
Cuts merged_cuts(const Grid& grid, size_t from, size_t to) {
    size_t split = from;  // the last axis that is cut
    for (size_t axis = from; axis < to; ++axis)
        if (grid.tiles(axis) > 1) split = axis;
    for (size_t axis = from; axis < split; ++axis)
        if (grid.tiles(axis) != grid.axes[axis].back())
            return {};  // must be cut into single elements
    const Dims shape = grid.shape();
    const int64_t outer = product(shape, from, split), inner = product(shape, split + 1, to);
    Cuts out{0};
    if (from == to) return {0, 1};
    for (int64_t o = 0; o < outer; ++o)
        for (size_t i = 1; i < grid.axes[split].size(); ++i)
            out.push_back((o * shape[split] + grid.axes[split][i]) * inner);
    return out;
}

// The inverse: cuts for the axes of `shape` [from, to) such that their merged cuts are `merged`;
// false if there are none.
bool split_cuts(const Cuts& merged, const Dims& shape, size_t from, size_t to,
                std::vector<Cuts>* out) {
    if (from == to) return merged.size() == 2;
    for (size_t split = from; split < to; ++split) {
        const int64_t inner = product(shape, split + 1, to);
        Cuts cuts{0};
        for (size_t i = 1; i < merged.size() && merged[i] <= shape[split] * inner; ++i) {
            if (merged[i] % inner != 0) break;
            cuts.push_back(merged[i] / inner);
        }
        if (cuts.back() != shape[split]) continue;
        const int64_t outer = product(shape, from, split);
        if (outer * int64_t(cuts.size() - 1) != int64_t(merged.size() - 1)) continue;
        Grid candidate;
        for (size_t axis = from; axis < split; ++axis)
            candidate.axes.push_back(cut_every(shape[axis], 1));
        candidate.axes.push_back(cuts);
        for (size_t axis = split + 1; axis < to; ++axis)
            candidate.axes.push_back(whole(shape[axis]));
        if (merged_cuts(candidate, 0, candidate.rank()) != merged) continue;
        out->insert(out->end(), candidate.axes.begin(), candidate.axes.end());
        return true;
    }
    return false;
}

// Grid of the new shape that shares the tiles of x; false if there is none.
bool shared_grid(const Tensor& x, const Dims& shape, Grid* out) {
    size_t a = 0, b = 0;
    const Dims& old = x.shape();
    while (a < old.size() || b < shape.size()) {
        size_t a_end = a, b_end = b;
        int64_t pa = 1, pb = 1;
        do {  // the smallest group of axes with equal products
            if (pa <= pb && a_end < old.size())
                pa *= old[a_end++];
            else if (b_end < shape.size())
                pb *= shape[b_end++];
            else
                pa *= old[a_end++];
        } while (pa != pb);
        if (b_end == shape.size())  // trailing sizes of 1 join the last group
            while (a_end < old.size() && old[a_end] == 1) ++a_end;
        const Cuts merged = merged_cuts(x.grid(), a, a_end);
        if (merged.empty() || !split_cuts(merged, shape, b, b_end, &out->axes)) return false;
        a = a_end;
        b = b_end;
    }
    return true;
}

}  // namespace

Tensor as_rows(const Tensor& x) {
    return reshape(x, {product(x.shape(), 0, x.rank() - 1), x.dim(-1)});
}

Tensor reshape(const Tensor& x, const Dims& shape) {
    if (shape == x.shape()) return x;
    Grid grid;
    if (shared_grid(x, shape, &grid)) return x.view(grid);
    return whole_tensor(x).view(Grid::whole(shape));
}

Tensor slice(const Tensor& x, int axis, int64_t start, int64_t length) {
    const Cuts& cuts = x.grid().axes[size_t(axis)];
    Cuts kept{0};
    for (int64_t cut : cuts)
        if (cut > start && cut < start + length) kept.push_back(cut - start);
    kept.push_back(length);
    const Grid grid = x.grid().with(axis, kept);
    const auto first = std::lower_bound(cuts.begin(), cuts.end(), start);
    if (*first == start && std::binary_search(first, cuts.end(), start + length)) {
        std::vector<TilePtr> tiles;  // they are whole: share them
        for (int64_t i = 0; i < grid.tiles(); ++i) {
            Dims at = grid.index(i);
            at[size_t(axis)] += first - cuts.begin();
            tiles.push_back(x.tile(x.grid().number(at)));
        }
        return Tensor(grid, x.dtype(), tiles);
    }
    Tensor out(grid, x.dtype());
    Region region = whole_region(out.shape());
    region.src_start[size_t(axis)] = start;
    copy_region(out, x, region);
    return out;
}

Tensor permute(const Tensor& x, const std::vector<int>& order) {
    Grid grid;
    for (int axis : order) grid.axes.push_back(x.grid().axes[size_t(axis)]);
    Tensor out(grid, x.dtype());
    Region region = whole_region(out.shape());
    region.from = order;
    copy_region(out, x, region);
    return out;
}

Tensor expand(const Tensor& x, const Dims& shape) {
    if (shape == x.shape()) return x;
    const size_t extra = shape.size() - x.rank();
    Grid grid = Grid::whole(shape);
    Region region = whole_region(shape);
    region.src_start = Dims(x.rank(), 0);
    for (size_t k = 0; k < shape.size(); ++k) {
        const bool follows = k >= extra && x.shape()[k - extra] == shape[k];
        region.from[k] = follows ? int(k - extra) : -1;
        if (follows) grid.axes[k] = x.grid().axes[k - extra];
    }
    Tensor out(grid, x.dtype());
    copy_region(out, x, region);
    return out;
}

}  // namespace nn
