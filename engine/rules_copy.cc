// The tile rules that move data: cutting anew, views that share tiles where they can, and copies
// where they cannot.
#include <algorithm>

#include "engine/error.h"
#include "engine/rules.h"

namespace nn {
namespace {

// Tiles of one axis that meet [start, end).
struct Range {
    int64_t first, last;  // tile positions, both included
};
Range tiles_meeting(const Cuts& cuts, int64_t start, int64_t end) {
    const auto first = std::upper_bound(cuts.begin(), cuts.end(), start) - 1;
    const auto last = std::lower_bound(cuts.begin(), cuts.end(), end) - 1;
    return {first - cuts.begin(), last - cuts.begin()};
}

// Calls visit(index) for every position in the box of ranges, row-major.
template <class F> void for_each_index(const std::vector<Range>& ranges, F visit) {
    Dims index;
    for (const Range& r : ranges) index.push_back(r.first);
    while (true) {
        visit(index);
        size_t axis = ranges.size();
        while (axis > 0 && index[axis - 1] == ranges[axis - 1].last) {
            index[axis - 1] = ranges[axis - 1].first;
            --axis;
        }
        if (axis == 0) return;
        ++index[axis - 1];
    }
}

// The copy between one tile of dst and one of src: the part of the region that lies in both.
struct Piece {
    nn_copy_params params{};
    bool empty = false;
    int64_t count = 1;
};

Piece intersect(const Region& region, const Block& dst, const Block& src) {
    Piece piece;
    const Dims dst_strides = row_major_strides(dst.extent),
               src_strides = row_major_strides(src.extent);
    piece.params.ndim = int64_t(region.extent.size());
    for (size_t a = 0; a < src.start.size(); ++a)
        piece.params.src_offset += (region.src_start[a] - src.start[a]) * src_strides[a];
    for (size_t k = 0; k < region.extent.size(); ++k) {
        int64_t low = std::max<int64_t>(0, dst.start[k] - region.dst_start[k]);
        int64_t high =
            std::min(region.extent[k], dst.start[k] + dst.extent[k] - region.dst_start[k]);
        const int a = region.from[k];
        if (a >= 0) {
            low = std::max(low, src.start[size_t(a)] - region.src_start[size_t(a)]);
            high = std::min(
                high, src.start[size_t(a)] + src.extent[size_t(a)] - region.src_start[size_t(a)]);
        }
        if (low >= high) piece.empty = true;
        piece.params.extent[k] = high - low;
        piece.params.dst_stride[k] = dst_strides[k];
        piece.params.src_stride[k] = a >= 0 ? src_strides[size_t(a)] : 0;
        piece.params.dst_offset += (region.dst_start[k] + low - dst.start[k]) * dst_strides[k];
        piece.params.src_offset += low * piece.params.src_stride[k];
        piece.count *= high - low;
    }
    return piece;
}

std::vector<Range> source_tiles(const Tensor& src, const Region& region, const Block& dst) {
    std::vector<Range> ranges;
    for (size_t a = 0; a < src.rank(); ++a) {
        int64_t low = region.src_start[a], high = region.src_start[a] + 1;
        for (size_t k = 0; k < region.extent.size(); ++k)
            if (region.from[k] == int(a)) {
                const int64_t from = std::max<int64_t>(0, dst.start[k] - region.dst_start[k]);
                const int64_t to =
                    std::min(region.extent[k], dst.start[k] + dst.extent[k] - region.dst_start[k]);
                low = region.src_start[a] + from;
                high = region.src_start[a] + to;
            }
        ranges.push_back(tiles_meeting(src.grid().axes[a], low, high));
    }
    return ranges;
}

Dims identity_order(size_t rank) {
    Dims out(rank);
    for (size_t i = 0; i < rank; ++i) out[i] = int64_t(i);
    return out;
}

Region whole_region(const Dims& shape) {
    Region region{Dims(shape.size(), 0), Dims(shape.size(), 0), shape, {}};
    for (int64_t i : identity_order(shape.size())) region.from.push_back(int(i));
    return region;
}

}  // namespace

void copy_region(const Tensor& dst, const Tensor& src, const Region& region) {
    std::vector<Range> dst_ranges;
    for (size_t k = 0; k < dst.rank(); ++k)
        dst_ranges.push_back(tiles_meeting(dst.grid().axes[k], region.dst_start[k],
                                           region.dst_start[k] + region.extent[k]));
    for_each_index(dst_ranges, [&](const Dims& at) {
        const int64_t number = dst.grid().number(at);
        const Block block = dst.block(number);
        bool covered = true;
        for (size_t k = 0; k < dst.rank(); ++k)
            covered &= region.dst_start[k] <= block.start[k] &&
                       block.start[k] + block.extent[k] <= region.dst_start[k] + region.extent[k];
        bool first = covered;
        for_each_index(source_tiles(src, region, block), [&](const Dims& from) {
            const int64_t source = src.grid().number(from);
            const Piece piece = intersect(region, block, src.block(source));
            if (piece.empty) return;
            task("copy", dst.dtype())
                .use(first ? writes(dst.tile(number)) : updates(dst.tile(number)))
                .use(reads(src.tile(source)))
                .params(piece.params)
                .tile(number, block.extent)
                .emit();
            first = false;
        });
    });
}

void copy_into(const Tensor& dst, const Tensor& src) {
    if (dst.shape() != src.shape() || dst.dtype() != src.dtype())
        fail("a %s tensor of shape %s is needed, not %s of shape %s", dtype_name(dst.dtype()),
             to_string(dst.shape()).c_str(), dtype_name(src.dtype()),
             to_string(src.shape()).c_str());
    copy_region(dst, src, whole_region(dst.shape()));
}

Tensor copied(const Tensor& x) {
    Tensor out(x.grid(), x.dtype());
    copy_into(out, x);
    return out;
}

Tensor retile(const Tensor& x, const Grid& grid) {
    if (!x || x.grid() == grid) return x;
    Tensor out(grid, x.dtype());
    copy_into(out, x);
    return out;
}

Tensor recut(const Tensor& x, int axis, const Cuts& cuts) {
    Grid grid = x.grid();
    grid.axes[size_t(axis)] = cuts;
    return retile(x, grid);
}

Tensor whole_axis(const Tensor& x, int axis) { return recut(x, axis, whole(x.dim(axis))); }

Tensor whole_axes(const Tensor& x, int from, int to) {
    Grid grid = x.grid();
    for (int axis = from; axis < to; ++axis) grid.axes[size_t(axis)] = whole(x.dim(axis));
    return retile(x, grid);
}

Tensor whole_tensor(const Tensor& x) { return x ? whole_axes(x, 0, int(x.rank())) : x; }

Tensor cast(const Tensor& x, Dtype dtype) {
    if (x.dtype() == dtype) return x;
    Tensor out(x.grid(), dtype);
    for (int64_t i = 0; i < x.tiles(); ++i) {
        const Block block = x.block(i);
        task("cast", dtype)
            .use({writes(out.tile(i)), reads(x.tile(i))})
            .params(nn_cast_params{block.count(), int32_t(x.dtype())})
            .tile(i, block.extent)
            .emit();
    }
    return out;
}

void fill_tile(const Tensor& x, int64_t tile, double value) {
    const Block block = x.block(tile);
    task("fill", x.dtype())
        .use(writes(x.tile(tile)))
        .params(nn_fill_params{block.count(), value})
        .tile(tile, block.extent)
        .emit();
}

Tensor filled(const Grid& grid, Dtype dtype, double value) {
    Tensor out(grid, dtype);
    for (int64_t i = 0; i < out.tiles(); ++i) fill_tile(out, i, value);
    return out;
}

namespace {

// Axes of the old and the new shape fall into groups of equal products; inside a group a tile stays
// one contiguous run of elements only if it is "1, ..., 1, any, whole, ..., whole". Cuts of the
// group seen as one axis, or empty.
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

// Grid of the new shape that shares the tiles of x, or an empty one.
bool shared_grid(const Tensor& x, const Dims& shape, Grid* out) {
    size_t a = 0, b = 0;
    const Dims& old = x.shape();
    while (a < old.size() || b < shape.size()) {
        size_t a_end = a, b_end = b;
        int64_t pa = 1, pb = 1;
        do {  // the smallest group of axes with equal products; trailing sizes of 1 join the last
              // group
            if (pa <= pb && a_end < old.size())
                pa *= old[a_end++];
            else if (b_end < shape.size())
                pb *= shape[b_end++];
            else
                pa *= old[a_end++];
        } while (pa != pb);
        if (b_end == shape.size())
            while (a_end < old.size() && old[a_end] == 1) ++a_end;
        const Cuts merged = merged_cuts(x.grid(), a, a_end);
        if (merged.empty() || !split_cuts(merged, shape, b, b_end, &out->axes)) return false;
        a = a_end;
        b = b_end;
    }
    return true;
}

std::vector<TilePtr> tiles_of(const Tensor& x) {
    std::vector<TilePtr> out;
    for (int64_t i = 0; i < x.tiles(); ++i) out.push_back(x.tile(i));
    return out;
}

}  // namespace

Tensor reshape(const Tensor& x, const Dims& shape) {
    if (shape == x.shape()) return x;
    Grid grid;
    if (shared_grid(x, shape, &grid)) return Tensor(grid, x.dtype(), tiles_of(x));
    const Tensor one = whole_tensor(x);
    return Tensor(Grid::whole(shape), x.dtype(), tiles_of(one));
}

Tensor slice(const Tensor& x, int axis, int64_t start, int64_t length) {
    const Cuts& cuts = x.grid().axes[size_t(axis)];
    const auto first = std::lower_bound(cuts.begin(), cuts.end(), start);
    const auto last = std::lower_bound(cuts.begin(), cuts.end(), start + length);
    Grid grid = x.grid();
    if (*first == start && *last == start + length) {  // whole tiles: share them
        Cuts& mine = grid.axes[size_t(axis)];
        mine.assign(first, last + 1);
        for (int64_t& cut : mine) cut -= start;
        std::vector<TilePtr> tiles;
        for (int64_t i = 0; i < grid.tiles(); ++i) {
            Dims at = grid.index(i);
            at[size_t(axis)] += first - cuts.begin();
            tiles.push_back(x.tile(x.grid().number(at)));
        }
        return Tensor(grid, x.dtype(), tiles);
    }
    Cuts mine{0};
    for (int64_t cut : cuts)
        if (cut > start && cut < start + length) mine.push_back(cut - start);
    mine.push_back(length);
    grid.axes[size_t(axis)] = mine;
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
