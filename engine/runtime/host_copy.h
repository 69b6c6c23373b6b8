// Copies of whole tensors to and from row-major host memory. Both functions wait for the tiles, and
// fail while a program is recorded.
#pragma once
#include "engine/tile/tensor.h"

namespace nn {

void read_tensor(const Tensor& tensor, void* out);
void write_tensor(const Tensor& tensor, const void* in);

}  // namespace nn
