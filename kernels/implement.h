// How a file of kernels/cpu or kernels/cuda implements kernels of kernels/kernels.inc.
#pragma once
#include "kernels/call.h"

namespace nn {

// Registers functions, whose names are those of the kernels: "gemm, gemm_dgelu".
struct ImplementationRegistrar {
    ImplementationRegistrar(const char* target, const char* names, const KernelFn* functions);
};
// Likewise for several calls at once. The names are those of the kernels with "many_" before them.
struct ManyRegistrar {
    ManyRegistrar(const char* target, const char* names, const KernelsFn* functions);
};

}  // namespace nn

#define NN_TEXT(x) #x
#define NN_TEXT_OF(macro) NN_TEXT(macro)
// Once in a file, inside namespace nn::NN_TARGET. Initialisers run on every CPU, whatever they are
// compiled for, so these only pass pointers.
#define NN_IMPLEMENT(...)                                   \
    constexpr ::nn::KernelFn implemented[] = {__VA_ARGS__}; \
    const ::nn::ImplementationRegistrar registrar(NN_TEXT_OF(NN_TARGET), #__VA_ARGS__, implemented)
#define NN_IMPLEMENT_MANY(...)                                                       \
    constexpr ::nn::KernelsFn implemented_many[] = {__VA_ARGS__};                    \
    const ::nn::ManyRegistrar registrar_of_many(NN_TEXT_OF(NN_TARGET), #__VA_ARGS__, \
                                                implemented_many)
