// What the engine needs of the CUDA kernels beside the kernels: the state of cuBLASLt that a GPU
// worker keeps for its products (Gpu::blas). Throws std::runtime_error where the library is
// missing.
#pragma once
#include <string>

#ifndef NN_ISA
#define NN_ISA cuda
#endif

namespace nn::NN_ISA {

void* open_blas();  // on the worker's thread, with its device current
void close_blas(void* blas);
std::string blas_description();  // "cuBLASLt 13.0.2"

}  // namespace nn::NN_ISA
