#include "engine/rules/copy.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/graph/builder.h"

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

}  // namespace

Region whole_region(const Dims& shape) {
    Region region{Dims(shape.size(), 0), Dims(shape.size(), 0), shape, {}};
    for (size_t axis = 0; axis < shape.size(); ++axis) region.from.push_back(int(axis));
    return region;
}

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

}  // namespace nn
