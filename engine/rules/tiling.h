// Cuts new tensors into tiles: by the sizes set for axis names, else automatically from the shape
// and the machine's description (machine/machine.h).
#pragma once
#include <string>
#include <vector>

#include "engine/tile/tensor.h"

namespace nn {

// axis_names may be empty; an axis whose name has no set size is cut automatically.
Grid choose_grid(const Dims& shape, Dtype dtype, const std::vector<std::string>& axis_names);
void set_tile_size(const std::string& axis_name, int64_t size);  // 0: automatic
int64_t tile_size(const std::string& axis_name);                 // 0: automatic
int64_t tokens_per_tile(int64_t tokens);  // the automatic size for a batch of `tokens`

}  // namespace nn
