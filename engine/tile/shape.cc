#include "engine/tile/shape.h"

#include <algorithm>

#include "engine/base/error.h"

namespace nn {

int64_t product(const Dims& dims, size_t from, size_t to) {
    int64_t out = 1;
    for (size_t i = from; i < std::min(to, dims.size()); ++i)
        if (__builtin_mul_overflow(out, dims[i], &out) || out > max_count || out < -max_count)
            fail("shape %s has more elements than can be counted", to_string(dims).c_str());
    return out;
}

std::string to_string(const Dims& dims) {
    std::string out = "(";
    for (size_t i = 0; i < dims.size(); ++i) {
        if (i) out += ',';
        out += std::to_string(dims[i]);
    }
    return out += ')';
}

Dims row_major_strides(const Dims& dims) {
    Dims out(dims.size(), 1);
    for (size_t i = dims.size(); i-- > 1;) out[i - 1] = out[i] * dims[i];
    return out;
}

bool broadcast(const Dims& a, const Dims& b, Dims* out) {
    out->assign(std::max(a.size(), b.size()), 1);
    for (size_t i = 0; i < out->size(); ++i) {  // i counts from the last axis
        const int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
        const int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
        if (da != db && da != 1 && db != 1) return false;
        (*out)[out->size() - 1 - i] = da == 1 ? db : da;
    }
    return true;
}

Cuts whole(int64_t size) { return {0, size}; }

// The number of tiles of at most `tile` on an axis.
static int64_t tiles_needed(int64_t size, int64_t tile) {
    const int64_t parts = size < 1 ? 0 : (size - 1) / tile + 1;
    if (parts > max_tiles)
        fail("tiles of %lld cut an axis of %lld into %lld tiles; at most %lld are possible",
             (long long)tile, (long long)size, (long long)parts, (long long)max_tiles);
    return parts;
}

Cuts cut_every(int64_t size, int64_t tile) {
    const int64_t parts = tiles_needed(size, tile);
    Cuts out;
    for (int64_t i = 0; i < parts; ++i) out.push_back(i * tile);
    out.push_back(size);
    return out;
}

Cuts cut_evenly(int64_t size, int64_t tile) {
    const int64_t parts = std::max<int64_t>(1, tiles_needed(size, tile));
    const int64_t base = size / parts, rest = size % parts;  // size * i could overflow
    Cuts out;
    for (int64_t i = 0; i <= parts; ++i) out.push_back(base * i + rest * i / parts);
    return out;
}

Grid Grid::whole(const Dims& shape) {
    Grid grid;
    for (int64_t size : shape) grid.axes.push_back(nn::whole(size));
    return grid;
}

Grid Grid::with(int axis, Cuts cuts) const {
    Grid out = *this;
    out.axes[size_t(axis < 0 ? axis + int(rank()) : axis)] = std::move(cuts);
    return out;
}

int64_t Grid::tiles() const {
    Dims counts;
    for (size_t axis = 0; axis < rank(); ++axis) counts.push_back(tiles(axis));
    return product(counts);
}

Dims Grid::shape() const {
    Dims out;
    for (const Cuts& cuts : axes) out.push_back(cuts.back());
    return out;
}

Dims Grid::index(int64_t tile) const {
    Dims out(rank());
    for (size_t axis = rank(); axis-- > 0;) {
        out[axis] = tile % tiles(axis);
        tile /= tiles(axis);
    }
    return out;
}

int64_t Grid::number(const Dims& index) const {
    int64_t out = 0;
    for (size_t axis = 0; axis < rank(); ++axis) out = out * tiles(axis) + index[axis];
    return out;
}

Block Grid::block(int64_t tile) const {
    const Dims at = index(tile);
    Block out{Dims(rank()), Dims(rank())};
    for (size_t axis = 0; axis < rank(); ++axis) {
        out.start[axis] = axes[axis][size_t(at[axis])];
        out.extent[axis] = axes[axis][size_t(at[axis]) + 1] - out.start[axis];
    }
    return out;
}

}  // namespace nn
