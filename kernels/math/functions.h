// The functions that the formulas of kernels/pointwise.inc call.
#pragma once
#include "kernels/math/activations.h"
#include "kernels/math/exp.h"
#include "kernels/math/extremes.h"
#include "kernels/math/log.h"

namespace nn::NN_TARGET::math {

NN_HD static inline float expm1(float x) {
    const float clamped = x < -20.0f ? -20.0f : (x > 88.73f ? 88.73f : x);
    float n;
    const float q = exp_minus_one_reduced(clamped, 0.0f, &n), half_scale = pow2(whole(n) - 1);
    return std::copysign(2.0f * (half_scale * q + (half_scale - 0.5f)), x);
}
NN_HD static inline double expm1(double x) { return std::expm1(x); }

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

template <class T> NN_HD static inline T sin(T x) { return std::sin(x); }
template <class T> NN_HD static inline T cos(T x) { return std::cos(x); }
template <class T> NN_HD static inline T tan(T x) { return std::tan(x); }
template <class T> NN_HD static inline T asin(T x) { return std::asin(x); }
template <class T> NN_HD static inline T acos(T x) { return std::acos(x); }
template <class T> NN_HD static inline T atan(T x) { return std::atan(x); }
template <class T> NN_HD static inline T atan2(T y, T x) { return std::atan2(y, x); }
template <class T> NN_HD static inline T sinh(T x) { return std::sinh(x); }
template <class T> NN_HD static inline T cosh(T x) { return std::cosh(x); }
template <class T> NN_HD static inline T exp2(T x) { return std::exp2(x); }
template <class T> NN_HD static inline T log2(T x) { return std::log2(x); }
template <class T> NN_HD static inline T log10(T x) { return std::log10(x); }
template <class T> NN_HD static inline T trunc(T x) { return std::trunc(x); }
template <class T> NN_HD static inline T floor(T x) { return std::floor(x); }
template <class T> NN_HD static inline T ceil(T x) { return std::ceil(x); }
template <class T> NN_HD static inline T round_half_even(T x) { return std::rint(x); }

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

// The share of a's gradient in max(a, b): all of it, none, or half at a tie.
template <class T> NN_HD static inline T share(T a, T b) {
    return a > b ? T(1) : a == b ? T(0.5) : T(0);
}

template <class T> NN_HD static inline T softplus(T x) {
    return (x < T(0) ? T(0) : x) + log1p(exp(-abs(x)));  // the first term is NaN if x is
}
template <class T> NN_HD static inline T mish_slope(T x) {
    const T y = tanh(softplus(x));
    return y + x * sigmoid(x) * (1 - y * y);
}

}  // namespace nn::NN_TARGET::math
