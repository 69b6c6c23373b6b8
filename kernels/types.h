// C++ types of dtypes, for the kernels of every target. Each target defines its bf16.
#pragma once
#include "kernels/call.h"

namespace nn::NN_TARGET {

struct bf16;

// The type that arithmetic on T is done in and its sums are stored in, like nn::accumulator.
template <class T> struct Accumulator { using type = int64_t; };
template <> struct Accumulator<float> { using type = float; };
template <> struct Accumulator<double> { using type = double; };
template <> struct Accumulator<bf16> { using type = float; };
template <class T> using Acc = typename Accumulator<T>::type;

// Calls f with a null pointer to the dtype's C++ type: [&]<class T>(T*) { ... }.
template <class F> void visit_float(Dtype dtype, F f) {
    switch (dtype) {
        case Dtype::f32: return f((float*)nullptr);
        case Dtype::f64: return f((double*)nullptr);
        default: return f((bf16*)nullptr);
    }
}

}  // namespace nn::NN_TARGET
