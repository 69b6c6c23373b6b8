// What the engine needs of the CUDA kernels beside the kernels: the state of cuBLASLt that a GPU
// worker keeps for its products (Gpu::blas), and that of cuDNN for attention (Gpu::cudnn). Throws
// std::runtime_error where cuBLASLt is missing; without cuDNN our own kernels do the work.
#pragma once
#include <string>

#ifndef NN_TARGET
#define NN_TARGET cuda
#endif

namespace nn::NN_TARGET {

void* open_blas();  // on the worker's thread, with its device current
void close_blas(void* blas);
std::string blas_description();  // "cuBLASLt 13.0.2"

void* open_cudnn();  // likewise; nullptr where there is none
void close_cudnn(void* cudnn);
std::string cudnn_description();  // "cuDNN 9.19.0", or why there is none

}  // namespace nn::NN_TARGET
