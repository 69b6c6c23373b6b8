// Shapes and grids. A Grid cuts every axis of a shape into tiles at any positions, so tiles may
// have different sizes; tiles are numbered row-major.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace nn {

constexpr int max_dims = 8;                      // as in kernels/params/
constexpr int64_t max_count = int64_t(1) << 59;  // elements of a tensor; its bytes fit int64_t
constexpr int64_t max_tiles = int64_t(1) << 24;  // of one tensor

using Dims = std::vector<int64_t>;
using Cuts = std::vector<int64_t>;  // 0 = cuts[0] < cuts[1] < ... < cuts.back() = size of the axis

int64_t product(const Dims& dims, size_t from = 0, size_t to = SIZE_MAX);  // fails beyond max_count
std::string to_string(const Dims& dims);                                   // "(2,3)"
Dims row_major_strides(const Dims& dims);
// The shape to which both broadcast by PyTorch's rules; returns false if there is none.
bool broadcast(const Dims& a, const Dims& b, Dims* out);

Cuts whole(int64_t size);
Cuts cut_every(int64_t size, int64_t tile);   // the last tile may be smaller
Cuts cut_evenly(int64_t size, int64_t tile);  // the fewest tiles of at most `tile`, equal within 1

// The position and size of a tile in its tensor.
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
