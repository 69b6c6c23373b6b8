// A tensor: shape, dtype and tiles. Tensors are values: an op creates new ones, and changes only
// the inputs that it declares as in place. A view (reshape, slice, ...) shares tiles if the grids
// allow it, and is a copy otherwise. To hide this difference, using a view after its source changed
// in place is an error.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/tile/shape.h"
#include "engine/tile/tile.h"
#include "kernels/kernel.h"

namespace nn {

struct TensorData {
    Dims shape;
    Dtype dtype;
    Grid grid;
    std::vector<TilePtr> tiles;
    // Versions of the tiles when the view was created; empty for a tensor that owns its tiles.
    std::vector<uint32_t> versions;
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
    bool stale() const;       // a view whose source has changed in place
    int64_t version() const;  // grows with every change in place
    void changed() const;     // call it when an op has changed the tensor in place
    Tensor view(Grid cuts) const { return Tensor(std::move(cuts), dtype(), data_->tiles); }
    Tensor refreshed_view() const { return view(grid()); }
    bool temporary() const;  // some of its tiles exist only inside the program being recorded
    const TensorData* identity() const { return data_.get(); }

private:
    std::shared_ptr<TensorData> data_;
};

}  // namespace nn
