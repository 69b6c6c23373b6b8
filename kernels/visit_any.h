// Calls a function for the C++ type of any dtype.
#pragma once
#include "kernels/types.h"

namespace nn::NN_TARGET {

// Like visit_float.
template <class F> void visit_any(Dtype dtype, F f) {
    switch (dtype) {
        case Dtype::i32: return f((int32_t*)nullptr);
        case Dtype::i64: return f((int64_t*)nullptr);
        case Dtype::u8:
        case Dtype::boolean: return f((uint8_t*)nullptr);
        default: return visit_float(dtype, f);
    }
}

}  // namespace nn::NN_TARGET
