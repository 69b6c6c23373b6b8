// Included by every CPU kernel file. Each file is compiled once for each CPU target, with
// everything in namespace nn::NN_TARGET, so that the linker never uses an inline function of one
// target in another. Loops are vectorised by the compiler (`#pragma omp simd`), without intrinsics.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/host_device.h"
#include "kernels/implement.h"
#include "kernels/types.h"
#include "kernels/visit_any.h"

namespace nn::NN_TARGET {

// For storage; arithmetic is done in float. Rounds to nearest even, keeps NaN.
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
    // GCC does not vectorise the assignment of a whole struct.
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

// An operand of i32 or i64, such as token ids.
struct Indices {
    const void* data;
    bool wide;
    Indices(const KernelCall& call, int operand, int32_t dtype)
        : data(call.input<void>(operand)), wide(Dtype(dtype) == Dtype::i64) {}
    int64_t operator[](int64_t i) const {
        return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
    }
};

// Calls f(j) for all j < n, in the lanes of vectors.
template <class F> [[gnu::always_inline]] static inline void simd_for(int64_t n, F f) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) f(j);
}

// The sum of f(j) over all j < n, kept in the lanes of vectors.
template <class A, class F> [[gnu::always_inline]] static inline A simd_sum(int64_t n, F f) {
    A sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; ++j) sum += f(j);
    return sum;
}

}  // namespace nn::NN_TARGET
