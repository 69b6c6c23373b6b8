// The state of NVIDIA's libraries that the engine keeps for each GPU worker: cuBLASLt's for
// products (Gpu::blas) and cuDNN's for attention (Gpu::cudnn). open_blas() throws
// std::runtime_error if cuBLASLt is missing; without cuDNN our own kernels run.
#pragma once
#include <string>

#ifndef NN_TARGET
#define NN_TARGET cuda
#endif

namespace nn::NN_TARGET {

void* open_blas();  // on the worker's thread, with its device current
void close_blas(void* blas);
std::string blas_description();  // "cuBLASLt 13.0.2"

void* open_cudnn();  // likewise; nullptr without cuDNN
void close_cudnn(void* cudnn);
std::string cudnn_description();  // "cuDNN 9.19.0", or why it is not used

}  // namespace nn::NN_TARGET
