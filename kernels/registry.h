// How kernels are declared and implemented. Declarations come from kernels/kernels.inc; a file of
// kernels/cpu or kernels/cuda implements some of them with NN_IMPLEMENT.
#pragma once
#include <map>

#include "kernels/kernel.h"

namespace nn {

struct Declaration {
    const char* name;
    Bound bound;
    const char* operands;     // "y:w x:r bias:r?": name, access (r, w, rw), ? for optional
    const char* params_type;  // the C struct's name in params.h
    size_t params_size;
    int tf32_offset = -1;  // of the int32_t params.tf32, -1 without one
};

// `function` implements `kernel` for `target`.
struct NamedImplementation {
    std::string kernel, target;
    KernelFn function;
};

// Joins both lists by name. Throws std::logic_error if they contradict each other.
std::map<std::string, Kernel> link_kernels(const std::vector<Declaration>& declarations,
                                           const std::vector<NamedImplementation>& implementations);

void declare_kernel(const Declaration& declaration);  // adds to those of kernels.inc, for tests

// Registers functions, whose names are those of the kernels: "gemm, gemm_dgelu".
struct ImplementationRegistrar {
    ImplementationRegistrar(const char* target, const char* names, const KernelFn* functions);
};

}  // namespace nn

#define NN_TEXT(x) #x
#define NN_TEXT_OF(macro) NN_TEXT(macro)
// Once in a file, inside namespace nn::NN_TARGET. Initialisers run on every CPU, whatever they are
// compiled for, so these only pass pointers.
#define NN_IMPLEMENT(...)                                   \
    constexpr ::nn::KernelFn implemented[] = {__VA_ARGS__}; \
    const ::nn::ImplementationRegistrar registrar(NN_TEXT_OF(NN_TARGET), #__VA_ARGS__, implemented)
