// The pieces of elementary functions that compilers vectorise: no branches, no tables, no calls.
// The float versions of the functions in this folder are within a few ulp (tests/cpp/
// pointwise_layout_test.cc has the numbers). The double versions call the C library, because mostly
// tests use them. Infinities, NaN and signed zeros are as in the C library, but results below the
// smallest normal float may be flushed to zero.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace nn::NN_TARGET {

NN_HD static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
NN_HD static inline float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

// Stochastic rounding to bf16: one of x's two neighbours, such that the mean is x. The upper 16
// bits of noise are added below bf16's last bit.
NN_HD static inline float round_stochastically(float x, uint32_t noise) {
    const uint32_t u = bits_of(x);
    const bool finite = (u & 0x7F800000u) != 0x7F800000u;
    const float rounded = float_of((u + (noise >> 16)) & 0xFFFF0000u);
    return finite ? rounded : x;
}

// x rounded to a whole number, |x| < 2^22, ties to even. Needs a build without fast-math.
NN_HD static inline float nearest(float x) { return (x + 12582912.0f) - 12582912.0f; }

// The polynomial with these coefficients, the highest first.
template <class... Rest> NN_HD static inline float polynomial(float x, float first, Rest... rest) {
    float p = first;
    ((p = p * x + rest), ...);
    return p;
}

namespace math {

template <class T> NN_HD static inline T sqrt(T x) { return std::sqrt(x); }
template <class T> NN_HD static inline T abs(T x) { return std::fabs(x); }
NN_HD static inline int64_t abs(int64_t x) { return x < 0 ? -x : x; }

}  // namespace math
}  // namespace nn::NN_TARGET
