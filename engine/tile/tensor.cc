#include "engine/tile/tensor.h"

#include "engine/base/error.h"
#include "engine/memory/admission.h"

namespace nn {

Tensor::Tensor(Grid cuts, Dtype dtype) : Tensor(std::move(cuts), dtype, {}) {
    for (int64_t size : shape())
        if (size < 1) fail("shape %s: every size must be at least 1", to_string(shape()).c_str());
    if (product(shape()) > int64_t(1) << 56)
        fail("shape %s has too many elements", to_string(shape()).c_str());
    const int64_t count = grid().tiles();
    if (count > max_tiles)
        fail("a tensor of shape %s in %lld tiles; at most %lld are possible",
             to_string(shape()).c_str(), (long long)count, (long long)max_tiles);
    if (!recording_number() && !fits(bytes()))
        refuse_admission(bytes(), format("%s's result %s %s", current_op(),
                                         to_string(shape()).c_str(), dtype_name(dtype)));
    for (int64_t i = 0; i < count; ++i)
        data_->tiles.push_back(
            std::make_shared<Tile>(size_t(block(i).count()) * dtype_size(dtype)));
}

Tensor::Tensor(Grid grid, Dtype dtype, std::vector<TilePtr> tiles)
    : data_(std::make_shared<TensorData>()) {
    data_->shape = grid.shape();
    if (rank() > size_t(max_dims))
        fail("shape %s has %zu axes; at most %d are possible", to_string(shape()).c_str(), rank(),
             max_dims);
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

int64_t Tensor::version() const {
    int64_t sum = 0;
    for (const TilePtr& tile : data_->tiles) sum += tile->version;
    return sum;
}

void Tensor::changed() const {
    for (const TilePtr& tile : data_->tiles) ++tile->version;
}

bool Tensor::temporary() const {
    for (const TilePtr& tile : data_->tiles)
        if (tile->recording) return true;
    return false;
}

}  // namespace nn
