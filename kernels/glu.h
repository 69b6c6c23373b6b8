// The activations of gated linear units (Shazeer, arXiv:2002.05202) and their slopes.
#pragma once
#include "kernels/math/activations.h"
#include "kernels/params/glu.h"

namespace nn::NN_TARGET {

struct GluSilu {
    template <class A> NN_HD static A value(A x) { return x * math::sigmoid(x); }
    template <class A> NN_HD static A slope(A x) { return math::silu_slope(x); }
};
struct GluGelu {
    template <class A> NN_HD static A value(A x) { return math::gelu(x); }
    template <class A> NN_HD static A slope(A x) { return math::gelu_slope(x); }
};
struct GluGeluExact {
    template <class A> NN_HD static A value(A x) { return x * math::normal_cdf(x); }
    template <class A> NN_HD static A slope(A x) {
        return math::normal_cdf(x) + x * math::normal_density(x);
    }
};

// Calls f with one of these.
template <class F> void visit_glu(int32_t activation, F f) {
    if (activation == nn_glu_silu) return f(GluSilu());
    if (activation == nn_glu_gelu) return f(GluGelu());
    f(GluGeluExact());
}

}  // namespace nn::NN_TARGET
