#include "engine/rules/copy.h"

#include <algorithm>
#include <cstddef>

#include "engine/base/error.h"
#include "engine/graph/builder.h"
#include "kernels/params/copy.h"
#include "kernels/params/fill.h"

namespace nn {
namespace {

struct Range {
    int64_t first, end;  // [first, end)
};

// The tiles of one axis that overlap [first, end).
Range tiles_in(const Cuts& cuts, int64_t first, int64_t end) {
    const auto begin = cuts.begin();
    return {std::upper_bound(begin, cuts.end(), first) - begin - 1,
            std::lower_bound(begin, cuts.end(), end) - begin};
}

// Calls visit(index) for every position in the box of ranges, row-major.
template <class F> void for_each_index(const std::vector<Range>& ranges, F visit) {
    Dims index;
    for (const Range& r : ranges) index.push_back(r.first);
    while (true) {
        visit(index);
        size_t axis = ranges.size();
        for (; axis > 0 && index[axis - 1] + 1 == ranges[axis - 1].end; --axis)
            index[axis - 1] = ranges[axis - 1].first;
        if (axis == 0) return;
        ++index[axis - 1];
    }
}

// The part of axis k of the region that a tile of dst covers.
Range covered(const Region& region, size_t k, const Block& dst) {
    const int64_t first = dst.start[k] - region.dst_start[k];
    return {std::max<int64_t>(0, first), std::min(region.extent[k], first + dst.extent[k])};
}

// The tiles of src that a tile of dst needs.
std::vector<Range> source_tiles(const Tensor& src, const Region& region, const Block& dst) {
    std::vector<Range> ranges;
    for (size_t a = 0; a < src.rank(); ++a) {
        Range range{0, 1};
        for (size_t k = 0; k < region.extent.size(); ++k)
            if (region.from[k] == int(a)) range = covered(region, k, dst);
        const int64_t start = region.src_start[a];
        ranges.push_back(tiles_in(src.grid().axes[a], start + range.first, start + range.end));
    }
    return ranges;
}

// The copy between two tiles: the part of the region that lies in both.
nn_copy_params copy_params(const Region& region, const Block& dst, const Block& src) {
    nn_copy_params p{};
    const Dims to = row_major_strides(dst.extent), from = row_major_strides(src.extent);
    p.ndim = int64_t(region.extent.size());
    for (size_t a = 0; a < src.start.size(); ++a)
        p.src_offset += (region.src_start[a] - src.start[a]) * from[a];
    for (size_t k = 0; k < region.extent.size(); ++k) {
        Range range = covered(region, k, dst);
        if (region.from[k] >= 0) {
            const size_t a = size_t(region.from[k]);
            const int64_t first = src.start[a] - region.src_start[a];
            range.first = std::max(range.first, first);
            range.end = std::min(range.end, first + src.extent[a]);
            p.src_stride[k] = from[a];
        }
        p.extent[k] = range.end - range.first;
        p.dst_stride[k] = to[k];
        p.dst_offset += (region.dst_start[k] + range.first - dst.start[k]) * to[k];
        p.src_offset += range.first * p.src_stride[k];
    }
    return p;
}

double bytes_of(const nn_copy_params& p, Dtype dtype) {
    double elements = 1;
    for (int64_t k = 0; k < p.ndim; ++k) elements *= double(p.extent[k]);
    return 2 * elements * double(dtype_size(dtype));
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
        dst_ranges.push_back(tiles_in(dst.grid().axes[k], region.dst_start[k],
                                      region.dst_start[k] + region.extent[k]));
    for_each_index(dst_ranges, [&](const Dims& at) {
        const int64_t number = dst.grid().number(at);
        const Block block = dst.block(number);
        bool fresh = true;  // the region covers the whole tile
        for (size_t k = 0; k < dst.rank(); ++k) {
            const Range range = covered(region, k, block);
            fresh &= range.end - range.first == block.extent[k];
        }
        for_each_index(source_tiles(src, region, block), [&](const Dims& from) {
            const int64_t source = src.grid().number(from);
            const nn_copy_params p = copy_params(region, block, src.block(source));
            task("copy", dst.dtype())
                .use({adds(dst, number, fresh), reads(src, source)})
                .bytes(bytes_of(p, dst.dtype()))
                .params(p)
                .emit(number, block.extent);
            fresh = false;
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

Tensor copied(const Tensor& x, const Grid& grid) {
    Tensor out(grid, x.dtype());
    copy_into(out, x);
    return out;
}

Tensor retile(const Tensor& x, const Grid& grid) {
    return !x || x.grid() == grid ? x : copied(x, grid);
}

Tensor recut(const Tensor& x, int axis, const Cuts& cuts) {
    return retile(x, x.grid().with(axis, cuts));
}

Tensor whole_axis(const Tensor& x, int axis) { return recut(x, axis, whole(x.dim(axis))); }

Tensor whole_tensor(const Tensor& x) { return x ? retile(x, Grid::whole(x.shape())) : x; }

void cast_into(const Tensor& dst, const Tensor& src) {
    for (int64_t i = 0; i < src.tiles(); ++i) {
        const Block block = src.block(i);
        task("cast", dst.dtype())
            .use({writes(dst, i), reads(src, i)})
            .params(nn_cast_params{block.count(), int32_t(src.dtype())})
            .emit(i, block.extent);
    }
}

Tensor cast(const Tensor& x, Dtype dtype) {
    if (x.dtype() == dtype) return x;
    Tensor out(x.grid(), dtype);
    cast_into(out, x);
    return out;
}

void fill(const Tensor& x, double value, int32_t scalar) {
    std::vector<Patch> patches;
    if (scalar >= 0) patches = {{Patch::scalar, int32_t(offsetof(nn_fill_params, value)), scalar}};
    for (int64_t i = 0; i < x.tiles(); ++i) {
        const Block block = x.block(i);
        task("fill", x.dtype())
            .use(writes(x, i))
            .params(nn_fill_params{block.count(), value})
            .patch(patches)
            .emit(i, block.extent);
    }
}

}  // namespace nn
