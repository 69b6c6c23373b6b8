// e^x, for all x and for x <= 0.
#pragma once
#include "kernels/math/base.h"

namespace nn::NN_TARGET {

// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2 (Cephes)
NN_HD static inline float exp_tail(float r) {
    return polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                      1.6666665459e-1f, 5.0000001201e-1f);
}

// q with e^(x + low) = 2^n (1 + q), |q| < 0.42, by Cody-Waite reduction.
NN_HD static inline float exp_minus_one_reduced(float x, float low, float* n) {
    *n = nearest(x * 1.44269504088896341f);
    const float r = ((x - *n * 0.693359375f) + *n * 2.12194440e-4f) + low;
    return exp_tail(r) * r * r + r;
}
// 2^n for -126 <= n <= 127
NN_HD static inline float pow2(int32_t n) { return float_of(uint32_t(n + 127) << 23); }
NN_HD static inline int32_t whole(float n) { return int32_t(n == n ? n : 0.0f); }

// e^(x + low) for a correction |low| of at most about 0.1; 0 below -87.3, infinity on overflow.
NN_HD static inline float exp_sum(float x, float low) {
    const float clamped =
        x < -87.3f ? -87.3f : (x > 88.73f ? 88.73f : x);  // NaN stays: both comparisons are false
    float n;
    const float q = exp_minus_one_reduced(clamped, low, &n);
    const int32_t half = whole(n) >> 1;  // 2^n in two factors, since n may be 128
    const float y = (1.0f + q) * pow2(half) * pow2(whole(n) - half);
    return x < -87.3f ? 0.0f : y;
}
// e^r for |r| <= ln(2) / 2
NN_HD static inline float exp_polynomial(float r) { return polynomial(r, exp_tail(r), 1.0f, 1.0f); }
// e^x within 1 ulp over the normal range, in the fastest form measured (0.21 ns an element with
// AVX-512, 1.2 with SSE2): n is in the low bits of the shifted sum and is added to the exponent.
NN_HD static inline float fast_exp(float x) {
    const float shifted = x * 1.44269504088896341f + 12582912.0f, n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float y = float_of(bits_of(exp_polynomial(r)) + (bits_of(shifted) << 23));
    return x <= 88.72283f ? (x < -87.3365f ? 0.0f : y) : x + INFINITY;  // NaN stays
}
NN_HD static inline double fast_exp(double x) { return std::exp(x); }

// e^x for x <= 0, such as differences from a maximum: one comparison instead of two, 0.17 ns. At
// -88 2^n becomes 0; just above, results are subnormal.
NN_HD static inline float exp_negative(float x) {
    const float clamped = x < -88.0f ? -88.0f : x;
    const float shifted = clamped * 1.44269504088896341f + 12582912.0f, n = shifted - 12582912.0f;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    return exp_polynomial(r) * float_of((bits_of(shifted) + 127u) << 23);
}
NN_HD static inline double exp_negative(double x) { return std::exp(x); }

namespace math {

template <class T> NN_HD static inline T exp(T x) { return fast_exp(x); }

}  // namespace math
}  // namespace nn::NN_TARGET
