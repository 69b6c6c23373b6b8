// Normal random numbers.
#pragma once
#include "kernels/math/angle.h"
#include "kernels/math/log.h"
#include "kernels/philox.h"

namespace nn::NN_TARGET::math {

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

}  // namespace nn::NN_TARGET::math
