// Sigmoid, GELU in both forms and the slopes of activations.
#pragma once
#include "kernels/math/exp.h"

namespace nn::NN_TARGET::math {

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

// t = e^-|x| cannot overflow, and the result is 1 / (1 + t) or t / (1 + t).
template <class T> NN_HD static inline T sigmoid(T x) {
    const T t = exp_negative(-abs(x));
    return (x > T(0) ? T(1) : t) / (T(1) + t);
}

// GPT-2's GELU, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as x sigmoid(z). With t = e^-|z|
// nothing overflows or cancels: sigmoid(z) is 1 or t, over 1 + t; its derivative is t / (1 + t)^2.
template <class T> NN_HD static inline T gelu(T x) {
    const T z = x * (T(1.5957691216057308) + T(0.07135481627260025) * x * x);
    const T t = exp_negative(-abs(z));
    return (z > T(0) ? x : x * t) / (T(1) + t);
}
struct ExactMath {
    template <class T> NN_HD static T exp_negative(T x) { return NN_TARGET::exp_negative(x); }
    template <class T> NN_HD static T inverse(T x) { return T(1) / x; }
};
// Math: the functions that it calls.
template <class Math = ExactMath, class T> NN_HD static inline T gelu_slope(T x) {
    const T z = x * (T(1.5957691216057308) + T(0.07135481627260025) * x * x);
    const T t = Math::exp_negative(-abs(z)), inverse = Math::inverse(T(1) + t);
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

}  // namespace nn::NN_TARGET::math
