// Elementary functions that compilers vectorise: no branches, no tables, no calls. The float
// versions are within a few ulp (tests/cpp/pointwise_layout_test.cc has the numbers). The double
// versions call the C library, because mostly tests use them. Infinities, NaN and signed zeros are
// as in the C library, but results below the smallest normal float may be flushed to zero.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/philox.h"  // NN_HD

#ifndef NN_TARGET
#define NN_TARGET baseline
#endif

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

// The functions of kernels/pointwise.inc.
namespace math {

template <class T> NN_HD static inline T exp(T x) { return fast_exp(x); }

NN_HD static inline float expm1(float x) {
    const float clamped = x < -20.0f ? -20.0f : (x > 88.73f ? 88.73f : x);
    float n;
    const float q = exp_minus_one_reduced(clamped, 0.0f, &n), half_scale = pow2(whole(n) - 1);
    return std::copysign(2.0f * (half_scale * q + (half_scale - 0.5f)), x);
}
NN_HD static inline double expm1(double x) { return std::expm1(x); }

// ln of a positive normal float: x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); Cephes' polynomial.
NN_HD static inline float log_normal(float x) {
    const int32_t e = int32_t(bits_of(x) - 0x3F3504F3u) >> 23;
    const float f = float_of(bits_of(x) - (uint32_t(e) << 23)) - 1.0f, exponent = float(e);
    const float p = polynomial(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                               -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                               2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
    const float f2 = f * f;
    const float tail = (p * f * f2 - exponent * 2.12194440e-4f) - 0.5f * f2;
    return (f + tail) + exponent * 0.693359375f;
}
NN_HD static inline float log(float x) {
    const bool tiny = x < 1.17549435e-38f;  // subnormal (or not positive, replaced below)
    const float y = log_normal(tiny ? x * 8388608.0f : x) - (tiny ? 15.9423851528787422f : 0.0f);
    const float special = x == 0.0f ? -INFINITY : NAN;
    return x > 0.0f ? (x <= 3.40282347e38f ? y : x) : special;
}
NN_HD static inline double log(double x) { return std::log(x); }

// ln(1 + x) = ln(u) + (rounding error of u = 1 + x) / u.
NN_HD static inline float log1p(float x) {
    const float u = 1.0f + x;
    const float lost = (x - (u - 1.0f)) / u;
    const float y = log(u) + (u > 0.0f && u <= 3.40282347e38f ? lost : 0.0f);
    return x == 0.0f ? x : y;
}
NN_HD static inline double log1p(double x) { return std::log1p(x); }

NN_HD static inline float tanh(float x) {
    const float clamped = x < -10.0f ? -10.0f : (x > 10.0f ? 10.0f : x);
    const float t = expm1(2.0f * clamped);
    return std::copysign(t / (t + 2.0f), x);
}
NN_HD static inline double tanh(double x) { return std::tanh(x); }

// e^(a^2) erfc(a) for 0 <= a <= 10: (1 + 2a) times it is fitted in (a - 2) / (a + 2), error 2e-8.
NN_HD static inline float erfcx(float a) {
    const float q = (a - 2.0f) / (a + 2.0f);
    const float p = polynomial(q, -4.09181783e-4f, -1.24077022e-3f, 1.32073404e-3f, 8.6424239e-3f,
                               -8.0618728e-3f, -5.42076863e-2f, 1.64055586e-1f, -1.66031078e-1f,
                               -9.27639902e-2f, 1.27697837f);
    return p / (1.0f + 2.0f * a);
}
// e^(-scale x^2) for scale 1 or 1/2. x^2 is split in two, so that its rounding is not amplified.
NN_HD static inline float exp_minus_square(float x, float scale) {
    const float head = float_of(bits_of(x) & 0xFFFFF000u);  // its square is exact
    return exp_sum(-scale * head * head, -scale * ((x - head) * (x + head)));
}

NN_HD static inline float erf(float x) {
    const float a = std::fabs(x), z = a * a;
    const float p = polynomial(z, 7.882497448e-5f, -8.01885501e-4f, 5.18931216e-3f, -2.68543288e-2f,
                               1.12835974e-1f, -3.7612626e-1f,
                               1.28379167e-1f);  // the last is 2 / sqrt(pi) - 1
    const float clamped = a > 10.0f ? 10.0f : a;
    const float large = 1.0f - erfcx(clamped) * exp_minus_square(clamped, 1.0f);
    return a < 1.0f ? x + x * p : std::copysign(large, x);
}
NN_HD static inline double erf(double x) { return std::erf(x); }

// The normal distribution function, erfc(-x / sqrt 2) / 2, accurate in both tails.
NN_HD static inline float normal_cdf(float x) {
    const float a = std::fabs(x), clamped = a > 14.0f ? 14.0f : a;
    const float tail =
        0.5f * erfcx(clamped * 0.70710678118654752f) * exp_minus_square(clamped, 0.5f);
    return x < 0.0f ? tail : 1.0f - tail;
}
NN_HD static inline double normal_cdf(double x) {
    return 0.5 * std::erfc(-x * 0.70710678118654752440);
}

template <class T> NN_HD static inline T sqrt(T x) { return std::sqrt(x); }
template <class T> NN_HD static inline T sin(T x) { return std::sin(x); }
template <class T> NN_HD static inline T cos(T x) { return std::cos(x); }
template <class T> NN_HD static inline T floor(T x) { return std::floor(x); }
template <class T> NN_HD static inline T ceil(T x) { return std::ceil(x); }
template <class T> NN_HD static inline T round_half_even(T x) { return std::rint(x); }

template <class T> NN_HD static inline T abs(T x) { return std::fabs(x); }
NN_HD static inline int64_t abs(int64_t x) { return x < 0 ? -x : x; }
template <class T> NN_HD static inline T sign(T x) { return T((x > T(0)) - (x < T(0))); }

template <class T> NN_HD static inline T pow(T a, T b) { return std::pow(a, b); }
// Wraps on overflow. A negative power is truncated: 0 unless a is 1 or -1.
NN_HD static inline int64_t pow(int64_t a, int64_t b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    uint64_t result = 1, base = uint64_t(a);
    for (; b; b >>= 1, base *= base)
        if (b & 1) result *= base;
    return int64_t(result);
}

// Python's %: the result has the sign of b.
template <class T> NN_HD static inline T remainder(T a, T b) {
    const T r = std::fmod(a, b);
    return r != T(0) && (r < T(0)) != (b < T(0)) ? r + b : r;
}
NN_HD static inline int64_t remainder(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;  // the processor would trap
    const int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// The result is NaN if either is, as in PyTorch. Two selections vectorise, one with || does not.
template <class T> NN_HD static inline T maximum(T a, T b) {
    const T larger = a > b ? a : b;  // b if that is NaN
    return a != a ? a : larger;
}
template <class T> NN_HD static inline T minimum(T a, T b) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
}
// The share of a's gradient in max(a, b): all of it, none, or half at a tie.
template <class T> NN_HD static inline T share(T a, T b) {
    return a > b ? T(1) : a == b ? T(0.5) : T(0);
}

// t = e^-|x| cannot overflow, and the result is 1 / (1 + t) or t / (1 + t).
template <class T> NN_HD static inline T sigmoid(T x) {
    const T t = exp_negative(-abs(x));
    return (x > T(0) ? T(1) : t) / (T(1) + t);
}
template <class T> NN_HD static inline T softplus(T x) {
    return (x > T(0) ? x : T(0)) + log1p(exp(-abs(x)));
}

// GPT-2's GELU, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as x sigmoid(z). With t = e^-|z|
// nothing overflows or cancels: sigmoid(z) is 1 or t, over 1 + t; its derivative is t / (1 + t)^2.
template <class T> NN_HD static inline T gelu(T x) {
    const T z = x * (T(1.5957691216057308) + T(0.07135481627260025) * x * x);
    const T t = exp_negative(-abs(z));
    return (z > T(0) ? x : x * t) / (T(1) + t);
}
template <class T> NN_HD static inline T gelu_slope(T x) {
    const T z = x * (T(1.5957691216057308) + T(0.07135481627260025) * x * x);
    const T t = exp_negative(-abs(z)), inverse = T(1) / (T(1) + t);
    const T dz = T(1.5957691216057308) + T(0.21406444881780076) * x * x;
    return ((z > T(0) ? T(1) : t) + x * t * dz * inverse) * inverse;
}
template <class T> NN_HD static inline T normal_density(T x) {
    return T(0.3989422804014327) * exp(T(-0.5) * x * x);
}
template <class T> NN_HD static inline T silu_slope(T x) {
    const T s = sigmoid(x);
    return s + s * (T(1) - s) * x;
}

// sin and cos of 2 pi t for -1 < t < 1: reduction to an eighth of a turn, then Cephes' polynomials.
NN_HD static inline void sincos_turns(float t, float* sine, float* cosine) {
    const float quarter = nearest(4.0f * t);
    const float x = (t - 0.25f * quarter) * 6.2831853071795865f, z = x * x;
    const float s = x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f - z * 1.9515295891e-4f));
    const float c =
        1.0f - 0.5f * z +
        z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
    const int32_t k = int32_t(quarter) & 3;
    const float odd_s = k & 1 ? c : s, odd_c = k & 1 ? s : c;
    *sine = k & 2 ? -odd_s : odd_s;
    *cosine = (k + 1) & 2 ? -odd_c : odd_c;
}
NN_HD static inline void sincos_turns(double t, double* sine, double* cosine) {
    *sine = std::sin(t * 6.28318530717958647693);
    *cosine = std::cos(t * 6.28318530717958647693);
}

// sin x and cos x of one angle in radians, |x| < 2^32, within 2e-7: whole turns are removed in
// double.
NN_HD static inline void sin_cos(float x, float* sine, float* cosine) {
    const double turns = double(x) * 0.15915494309189534;
    const double whole_turns = (turns + 6755399441055744.0) - 6755399441055744.0;
    sincos_turns(float(turns - whole_turns), sine, cosine);
}
NN_HD static inline void sin_cos(double x, double* sine, double* cosine) {
    *sine = std::sin(x);
    *cosine = std::cos(x);
}

// Two independent normal numbers from 24 bits of each of two random words (Box and Muller, 1958).
template <class T>
NN_HD static inline void box_muller(uint32_t word0, uint32_t word1, T* z0, T* z1) {
    const T u = T(int32_t(word0 >> 8) + 1) * T(1.0 / 16777216.0);  // in (0, 1], for the logarithm
    const T radius = sqrt(T(-2) * log(u));
    T sine, cosine;
    sincos_turns(T(unit_float(word1)), &sine, &cosine);
    *z0 = radius * cosine;
    *z1 = radius * sine;
}

}  // namespace math
}  // namespace nn::NN_TARGET
