// The activations of gated linear units in double, and their slopes by differences.
#pragma once
#include "kernels/params/glu.h"
#include "tests/cpp/gelu.h"

namespace nn::test {

inline double reference_gate(int32_t activation, double x) {
    if (activation == nn_glu_silu) return x / (1 + std::exp(-x));
    if (activation == nn_glu_gelu) return reference_gelu(x);
    return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}
inline double reference_gate_slope(int32_t activation, double x) {
    return (reference_gate(activation, x + 1e-5) - reference_gate(activation, x - 1e-5)) / 2e-5;
}

}  // namespace nn::test
