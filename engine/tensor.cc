#include "engine/tensor.h"

#include <algorithm>
#include <map>

#include "engine/error.h"
#include "engine/memory.h"
#include "engine/program.h"
#include "engine/runtime.h"

namespace nn {
namespace {

std::map<std::string, int64_t>& tile_sizes() {
    static std::map<std::string, int64_t> sizes;
    return sizes;
}

// Bytes; beyond twice this an unnamed tensor is cut, into a few tiles: where such weights meet,
// each product is one task per pair of tiles.
constexpr int64_t large_tile = int64_t(32) << 20;
int64_t large_tiles() { return std::max(12, 2 * planned_workers()); }
constexpr int64_t vocab_tile = 8192;

// Host layout of a tile: a callback of wait_readable/wait_writable copies between it and the user's
// row-major array.
struct HostCopy {
    Block block;
    Dims host_strides;
    size_t element;
    char* host;
    bool to_host;
};

void copy_rows(const HostCopy& c, size_t axis, char* host, char*& tile) {
    if (axis + 1 >= c.block.extent.size()) {
        const size_t bytes = size_t(c.block.extent.empty() ? 1 : c.block.extent.back()) * c.element;
        if (c.to_host)
            std::memcpy(host, tile, bytes);
        else
            std::memcpy(tile, host, bytes);
        tile += bytes;
        return;
    }
    for (int64_t i = 0; i < c.block.extent[axis]; ++i)
        copy_rows(c, axis + 1, host + size_t(i * c.host_strides[axis]) * c.element, tile);
}

void copy_tile(void* data, void* context) {
    const HostCopy& c = *static_cast<HostCopy*>(context);
    int64_t offset = 0;
    for (size_t i = 0; i < c.block.start.size(); ++i)
        offset += c.block.start[i] * c.host_strides[i];
    char* tile = static_cast<char*>(data);
    copy_rows(c, 0, c.host + size_t(offset) * c.element, tile);
}

void transfer(const Tensor& t, char* host, bool to_host) {
    for (int64_t i = 0; i < t.tiles(); ++i) {
        HostCopy copy{t.block(i), row_major_strides(t.shape()), dtype_size(t.dtype()), host,
                      to_host};
        if (to_host) {
            wait_readable(*t.tile(i), copy_tile, &copy);
        } else {
            wait_writable(*t.tile(i), copy_tile, &copy);
            t.tile(i)->set_written();
        }
    }
}

void check_rank(const Dims& shape) {
    if (shape.size() > size_t(max_dims))
        fail("shape %s has %zu axes; at most %d are possible", to_string(shape).c_str(),
             shape.size(), max_dims);
}

}  // namespace

// On CPU cores one tile a worker. Two a worker would balance better, but every tile reads all
// weights: measured on two cores, GPT-2 124M and 1024 tokens a step, two tiles of 512 are 11 %
// faster than four of 256. On GPUs two tiles a GPU, since StarPU hands a task out when those that
// it depends on are over: a GPU works on one tile meanwhile. This takes 10 us or so, in which 400
// TFLOP/s multiply 850 tokens by the largest weight of a block of GPT-2 124M.
int64_t tokens_per_tile(int64_t tokens, int cpus, int gpus) {
    const int64_t tiles = gpus > 0 ? 2 * gpus : cpus;
    return std::clamp<int64_t>((tokens + tiles - 1) / tiles, 128, gpus > 0 ? 8192 : 2048);
}

Tensor::Tensor(Grid grid, Dtype dtype) : data_(std::make_shared<TensorData>()) {
    data_->shape = grid.shape();
    check_rank(data_->shape);
    for (int64_t size : data_->shape)
        if (size < 1)
            fail("shape %s: every size must be at least 1", to_string(data_->shape).c_str());
    if (product(data_->shape) > int64_t(1) << 56)
        fail("shape %s has too many elements", to_string(data_->shape).c_str());
    data_->dtype = dtype;
    data_->grid = std::move(grid);
    const int64_t count = data_->grid.tiles();
    if (count > max_tiles)
        fail("a tensor of shape %s in %lld tiles; at most %lld are possible",
             to_string(data_->shape).c_str(), (long long)count, (long long)max_tiles);
    if (!recording_number() && !has_memory(bytes()))
        out_of_memory(bytes(), format("%s's result %s %s", current_op(), to_string(shape()).c_str(),
                                      dtype_name(dtype)));
    for (int64_t i = 0; i < count; ++i)
        data_->tiles.push_back(
            std::make_shared<Tile>(size_t(data_->grid.block(i).count()) * dtype_size(dtype)));
}

Tensor::Tensor(Grid grid, Dtype dtype, std::vector<TilePtr> tiles)
    : data_(std::make_shared<TensorData>()) {
    data_->shape = grid.shape();
    check_rank(data_->shape);
    data_->dtype = dtype;
    data_->grid = std::move(grid);
    for (const TilePtr& tile : tiles) data_->versions.push_back(tile->version);
    data_->tiles = std::move(tiles);
}

int64_t Tensor::dim(int axis) const {
    const int64_t at = axis < 0 ? axis + int64_t(rank()) : axis;
    if (at < 0 || at >= int64_t(rank()))
        fail("%s: a tensor of shape %s has too few axes", current_op(), to_string(shape()).c_str());
    return shape()[size_t(at)];
}

bool Tensor::stale() const {
    for (size_t i = 0; i < data_->versions.size(); ++i)
        if (data_->versions[i] != data_->tiles[i]->version) return true;
    return false;
}

void Tensor::changed() const {
    for (const TilePtr& tile : data_->tiles) ++tile->version;
}

void set_tile_size(const std::string& axis_name, int64_t size) { tile_sizes()[axis_name] = size; }

int64_t tile_size(const std::string& axis_name) {
    const auto it = tile_sizes().find(axis_name);
    return it == tile_sizes().end() ? 0 : it->second;
}

Grid choose_grid(const Dims& shape, Dtype dtype, const std::vector<std::string>& axis_names) {
    Grid grid = Grid::whole(shape);
    const int64_t element = int64_t(dtype_size(dtype));
    bool named = false;
    for (size_t axis = 0; axis < std::min(shape.size(), axis_names.size()); ++axis) {
        const std::string& name = axis_names[axis];
        if (name.empty()) continue;
        named = true;
        const int64_t inner = product(shape, axis + 1);
        if (const int64_t size = tile_size(name)) {
            grid.axes[axis] = cut_every(shape[axis], size);
        } else if (name == "vocab" && shape[axis] > vocab_tile) {
            grid.axes[axis] = cut_evenly(shape[axis], vocab_tile);
        } else if (name == "batch" || name == "time") {  // ids (batch, time): cut by tokens
            const int64_t wanted = tile_size("tokens");
            const int64_t tokens =
                wanted ? wanted
                       : tokens_per_tile(product(shape), planned_workers(), planned_gpus());
            const int64_t rows = name == "batch" ? std::max<int64_t>(1, tokens / inner)
                                                 : std::min(tokens, shape[axis]);
            grid.axes[axis] = cut_evenly(shape[axis], rows);
        }
    }
    if (!named && !shape.empty() && product(shape) * element > 2 * large_tile) {
        const int64_t tile = std::max(large_tile, product(shape) * element / large_tiles());
        const int64_t rows = std::max<int64_t>(1, tile / (product(shape, 1) * element));
        grid.axes[0] = cut_evenly(shape[0], rows);
    }
    return grid;
}

void read_tensor(const Tensor& tensor, void* out) {
    if (recording_number())
        fail(
            "a value cannot be read while a compiled function is being recorded; return the tensor "
            "from it instead");
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        if (tensor.tile(i)->recording)
            fail(
                "this tensor exists only inside the compiled function that made it; return it from "
                "there");
        tensor.tile(i)->check_readable("read");
    }
    transfer(tensor, static_cast<char*>(out), true);
}

void write_tensor(const Tensor& tensor, const void* in) {
    if (recording_number())
        fail("host data cannot be written while a compiled function is being recorded");
    if (tensor.is_view()) fail("a view cannot be written; write to the tensor it was taken from");
    for (int64_t i = 0; i < tensor.tiles(); ++i)
        if (tensor.tile(i)->recording)
            fail("host data cannot be written to a tensor of a compiled function");
    tensor.changed();  // also where an interrupt ends the writing half-way
    transfer(tensor, static_cast<char*>(const_cast<void*>(in)), false);
}

}  // namespace nn
