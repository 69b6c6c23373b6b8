// What every CPU kernel file shares. Each file is compiled once per instruction set (NN_TARGET is
// baseline, avx2 or avx512) with everything in namespace nn::NN_TARGET, so that no inline function
// built for one CPU is linked into the code for another. Loops are written for the compiler's
// vectoriser (`#pragma omp simd`), never with intrinsics.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/blas.h"
#include "kernels/math.h"
#include "kernels/registry.h"

#ifndef NN_TARGET
#define NN_TARGET baseline
#endif

namespace nn::NN_TARGET {

// Storage only: arithmetic happens in float. Rounds to nearest even, keeps NaN.
struct bf16 {
    uint16_t bits;
    bf16() = default;
    bf16(const bf16&) = default;
    bf16(float f) {
        uint32_t u;
        std::memcpy(&u, &f, 4);
        const uint32_t rounded = u + 0x7FFF + ((u >> 16) & 1), quiet_nan = u | 0x400000;
        bits = uint16_t((f != f ? quiet_nan : rounded) >> 16);
    }
    // Spelled out because GCC does not vectorise the assignment of a whole struct.
    bf16& operator=(const bf16& other) {
        bits = other.bits;
        return *this;
    }
    operator float() const {
        const uint32_t u = uint32_t(bits) << 16;
        float f;
        std::memcpy(&f, &u, 4);
        return f;
    }
};

// What arithmetic on T is done in, and what its sums are stored as (nn::accumulator says the same
// of dtypes).
template <class T> struct Accumulator { using type = int64_t; };
template <> struct Accumulator<float> { using type = float; };
template <> struct Accumulator<double> { using type = double; };
template <> struct Accumulator<bf16> { using type = float; };
template <class T> using Acc = typename Accumulator<T>::type;

// Calls f with a value of the C++ type behind a dtype: visit_float(dtype, [&](auto t) { using T =
// decltype(t); ... }).
template <class F> void visit_float(Dtype dtype, F f) {
    switch (dtype) {
        case Dtype::f32: return f(float());
        case Dtype::f64: return f(double());
        default: return f(bf16());
    }
}
template <class F> void visit_any(Dtype dtype, F f) {
    switch (dtype) {
        case Dtype::f32: return f(float());
        case Dtype::f64: return f(double());
        case Dtype::bf16: return f(bf16());
        case Dtype::i32: return f(int32_t());
        case Dtype::i64: return f(int64_t());
        default: return f(uint8_t());  // u8 and bool
    }
}
template <class F> void visit_index(Dtype dtype, F f) {
    return dtype == Dtype::i32 ? f(int32_t()) : f(int64_t());
}

}  // namespace nn::NN_TARGET
