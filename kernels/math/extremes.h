// The larger and the smaller of two numbers.
#pragma once
#include "kernels/math/base.h"

namespace nn::NN_TARGET::math {

// The result is NaN if either is, as in PyTorch. Two selections vectorise, one with || does not.
template <class T> NN_HD static inline T maximum(T a, T b) {
    const T larger = a > b ? a : b;  // b if that is NaN
    return a != a ? a : larger;
}
template <class T> NN_HD static inline T minimum(T a, T b) {
    const T smaller = a < b ? a : b;
    return a != a ? a : smaller;
}

}  // namespace nn::NN_TARGET::math
