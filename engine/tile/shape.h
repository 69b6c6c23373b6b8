// Shapes and their cutting into tiles. A Grid cuts every axis of a shape at given positions; tiles
// are numbered row-major. Ragged tiles are nothing special: cuts may lie anywhere.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace nn {

constexpr int max_dims = 8;               // as in kernels/params.h
constexpr int64_t max_count = 1LL << 59;  // elements of a tensor: their bytes must not overflow
constexpr int64_t max_tiles = 1LL << 24;  // of one tensor

using Dims = std::vector<int64_t>;
using Cuts = std::vector<int64_t>;  // 0 = cuts[0] < cuts[1] < ... < cuts.back() = size of the axis

int64_t product(const Dims& dims, size_t from = 0, size_t to = SIZE_MAX);  // fails beyond max_count
std::string to_string(const Dims& dims);                                   // "(2,3)"
Dims row_major_strides(const Dims& dims);
// The shape that both broadcast to, by PyTorch's rules; false if there is none.
bool broadcast(const Dims& a, const Dims& b, Dims* out);

Cuts whole(int64_t size);
Cuts cut_every(int64_t size, int64_t tile);   // the last tile may be smaller
Cuts cut_evenly(int64_t size, int64_t tile);  // as few tiles of at most `tile`, equal to within one

// Where a tile begins in its tensor, and its sizes.
struct Block {
    Dims start, extent;
    int64_t count() const { return product(extent); }
};

struct Grid {
    std::vector<Cuts> axes;

    Grid() = default;
    explicit Grid(std::vector<Cuts> cuts) : axes(std::move(cuts)) {}
    static Grid whole(const Dims& shape);
    Grid with(int axis, Cuts cuts) const;  // this one with another axis: from 0, or -1 for the last

    size_t rank() const { return axes.size(); }
    int64_t tiles(size_t axis) const { return int64_t(axes[axis].size()) - 1; }
    int64_t tiles() const;
    Dims shape() const;
    Block block(int64_t tile) const;
    Dims index(int64_t tile) const;           // tile number -> position per axis
    int64_t number(const Dims& index) const;  // and back
    bool operator==(const Grid& other) const { return axes == other.axes; }
};

}  // namespace nn
