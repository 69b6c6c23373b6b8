// Whole tensors to and from host memory, row-major. Both functions wait for the tiles, and both
// refuse while a program is being recorded.
#pragma once
#include "engine/tile/tensor.h"

namespace nn {

void read_tensor(const Tensor& tensor, void* out);
void write_tensor(const Tensor& tensor, const void* in);

}  // namespace nn
