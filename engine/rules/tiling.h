// How new tensors are cut into tiles: by the sizes that axis names were given, else automatically
// from the shape and the machine's description (machine/machine.h).
#pragma once
#include <string>
#include <vector>

#include "engine/tile/tensor.h"

namespace nn {

// axis_names may be empty; a name without a set size has an automatic one.
Grid choose_grid(const Dims& shape, Dtype dtype, const std::vector<std::string>& axis_names);
void set_tile_size(const std::string& axis_name, int64_t size);  // 0: automatic
int64_t tile_size(const std::string& axis_name);                 // 0: automatic
int64_t tokens_per_tile(int64_t tokens);  // the automatic size for a batch of so many tokens

}  // namespace nn
