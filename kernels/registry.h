// How the declarations of kernels/kernels.inc and the implementations (kernels/implement.h) become
// kernels.
#pragma once
#include <map>

#include "kernels/kernel.h"

namespace nn {

struct Declaration {
    const char* name;
    Bound bound;
    const char* operands;     // "y:w x:r bias:r?": name, access (r, w, rw), ? for optional
    const char* params_type;  // the C struct's name in kernels/params/
    size_t params_size;
    int tf32_offset = -1;  // of the int32_t params.tf32, -1 without one
};

// `function` implements `kernel` for `target`; `many`, if not nullptr, several calls at once.
struct NamedImplementation {
    std::string kernel, target;
    KernelFn function;
    KernelsFn many = nullptr;
};

// Joins both lists by name. Throws std::logic_error if they contradict each other.
std::map<std::string, Kernel> link_kernels(const std::vector<Declaration>& declarations,
                                           const std::vector<NamedImplementation>& implementations);

void declare_kernel(const Declaration& declaration);  // adds to those of kernels.inc, for tests

}  // namespace nn
