// The frequencies of rotary position embeddings (Su et al., arXiv:2104.09864), in radians per
// token, and the rules that stretch them for contexts longer than those of the training:
//
//   linear   positions are divided by `factor`
//   llama3   wavelengths above original / low are multiplied by `factor`, those below original /
//   high
//            are kept, and between them the frequency is interpolated (Llama 3.1)
//   yarn     the same by component: kept up to the one that turns `high` times in `original`
//   tokens,
//            divided from the one that turns `low` times on (Peng et al., arXiv:2309.00071)
#pragma once
#include <cmath>

#include "kernels/host_device.h"
#include "kernels/params/rope.h"

namespace nn::NN_TARGET {

constexpr double two_pi = 6.283185307179586;

// The component that turns `turns` times in p.original tokens, a real number.
NN_HD static inline double rope_component(const nn_rope_params& p, double turns) {
    return double(p.rotated) * std::log(p.original / (turns * two_pi)) / (2 * std::log(p.base));
}

// How much of the frequency of component i is divided by p.factor: 0 none, 1 all.
NN_HD static inline double rope_stretched(const nn_rope_params& p, int64_t i, double plain) {
    if (p.scaling == nn_rope_plain) return 0;
    if (p.scaling == nn_rope_linear) return 1;
    double share;
    if (p.scaling == nn_rope_llama3) {
        share = (p.high - p.original * plain / two_pi) / (p.high - p.low);
    } else {
        const double last = double(p.rotated - 1);
        const double from = std::fmax(std::floor(rope_component(p, p.high)), 0.0);
        const double to = std::fmin(std::ceil(rope_component(p, p.low)), last);
        share = (double(i) - from) / (from == to ? 0.001 : to - from);
    }
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

NN_HD static inline double rope_frequency(const nn_rope_params& p, int64_t i) {
    const double plain = std::exp(-2 * double(i) / double(p.rotated) * std::log(p.base));
    const double stretched = rope_stretched(p, i, plain);
    return plain * (1 - stretched) + plain / p.factor * stretched;
}

}  // namespace nn::NN_TARGET
