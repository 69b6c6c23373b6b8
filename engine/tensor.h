// A tensor: shape, dtype and tiles. Tensors are values: an op makes new ones, and changes in place
// only the inputs that it declares so. A view (reshape, slice, ...) shares tiles where the grids
// allow and is a copy where they do not; so that this cannot be seen, using a view after its source
// changed in place is an error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/task.h"

namespace nn {

struct TensorData {
    Dims shape;
    Dtype dtype;
    Grid grid;
    std::vector<TilePtr> tiles;
    std::vector<uint32_t>
        versions;  // of the tiles when the view was made; empty for a tensor that owns its tiles
};

class Tensor {
public:
    Tensor() = default;
    Tensor(Grid grid, Dtype dtype);                              // new, not yet written
    Tensor(Grid grid, Dtype dtype, std::vector<TilePtr> tiles);  // a view of these tiles

    explicit operator bool() const { return data_ != nullptr; }
    const Dims& shape() const { return data_->shape; }
    int64_t dim(int axis) const;  // from 0, negative from the end
    size_t rank() const { return data_->shape.size(); }
    int64_t count() const { return product(data_->shape); }
    int64_t bytes() const { return count() * int64_t(dtype_size(dtype())); }
    Dtype dtype() const { return data_->dtype; }
    const Grid& grid() const { return data_->grid; }
    int64_t tiles() const { return int64_t(data_->tiles.size()); }
    const TilePtr& tile(int64_t i) const { return data_->tiles[size_t(i)]; }
    Block block(int64_t i) const { return data_->grid.block(i); }
    bool is_view() const { return !data_->versions.empty(); }
    bool stale() const;    // a view whose source was changed in place since
    void changed() const;  // an op has written to it in place
    Tensor viewed_again() const {
        return Tensor(grid(), dtype(), data_->tiles);
    }  // of their present values
    const TensorData* identity() const { return data_.get(); }

private:
    std::shared_ptr<TensorData> data_;
};

// Tiles for a new tensor: axis names (may be empty) find their sizes in set_tile_size(), or else
// automatic ones.
Grid choose_grid(const Dims& shape, Dtype dtype, const std::vector<std::string>& axis_names);
void set_tile_size(const std::string& axis_name, int64_t size);  // 0: auto again
int64_t tile_size(const std::string& axis_name);                 // 0 when not set
// Tokens of a tile where no size is set; gpus: 0 where tasks go to none.
int64_t tokens_per_tile(int64_t tokens, int cpus, int gpus);

// Whole tensors to and from host memory, row-major. Both wait, and both refuse while recording.
void read_tensor(const Tensor& tensor, void* out);
void write_tensor(const Tensor& tensor, const void* in);

}  // namespace nn
