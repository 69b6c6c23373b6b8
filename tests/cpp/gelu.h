// GPT-2's GELU and its slope in double.
#pragma once
#include <cmath>

namespace nn::test {

inline double reference_gelu(double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
// With s = (1 + tanh u) / 2 and 1 - tanh^2 u = 4 s (1 - s), without cancellation.
inline double reference_gelu_slope(double x) {
    const double u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    const double s = 1 / (1 + std::exp(-2 * u)), rest = 1 / (1 + std::exp(2 * u));
    return s + 2 * x * s * rest * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

}  // namespace nn::test
