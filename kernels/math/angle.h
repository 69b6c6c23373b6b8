// Sine and cosine of one angle together.
#pragma once
#include "kernels/math/base.h"

namespace nn::NN_TARGET::math {

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

}  // namespace nn::NN_TARGET::math
