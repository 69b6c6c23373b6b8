// The natural logarithm.
#pragma once
#include "kernels/math/base.h"

namespace nn::NN_TARGET::math {

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

}  // namespace nn::NN_TARGET::math
