// Windows that slide over images, of convolutions and pooling, on CPUs and GPUs.
#pragma once
#include "kernels/host_device.h"
#include "kernels/params/conv.h"

namespace nn::NN_TARGET {

NN_HD inline int64_t ceil_quotient(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }

// What output `o` reads at tap `k`; outside [0, in) it is padding.
NN_HD inline int64_t window_at(const nn_window_axis& axis, int64_t o, int64_t k) {
    return o * axis.stride + k * axis.dilation - axis.pad;
}

struct Span {
    int64_t begin, end;  // [begin, end)
};

// The taps of output `o` inside the image, with dilation 1.
NN_HD inline Span taps_inside(const nn_window_axis& axis, int64_t o) {
    const int64_t start = o * axis.stride - axis.pad, left = axis.in - start;
    return {start < 0 ? -start : 0, left < axis.taps ? left : axis.taps};
}

// The outputs whose tap `k` is inside the image.
NN_HD inline Span outputs_inside(const nn_window_axis& axis, int64_t k) {
    const int64_t shift = axis.pad - k * axis.dilation;
    const int64_t begin = ceil_quotient(shift, axis.stride),
                  end = ceil_quotient(axis.in + shift, axis.stride);
    const int64_t last = end < axis.out ? end : axis.out;
    return {begin < last ? begin : last, last};
}

// The elements of a pooling window inside the image: rows and columns of the image.
struct Window {
    Span y, x;
};

NN_HD inline Window window_of(const nn_pool_params& p, int64_t oy, int64_t ox) {
    const Span y = taps_inside(p.y, oy), x = taps_inside(p.x, ox);
    const int64_t top = window_at(p.y, oy, 0), left = window_at(p.x, ox, 0);
    return {{top + y.begin, top + y.end}, {left + x.begin, left + x.end}};
}

// The position of the first largest element, of the last NaN if there is one, as in PyTorch.
// number(x): the value of an element.
template <class T, class F>
NN_HD int64_t largest_at(const T* x, int64_t width, const Window& w, F number) {
    int64_t best = w.y.begin * width + w.x.begin;
    for (int64_t i = w.y.begin; i < w.y.end; ++i)
        for (int64_t j = w.x.begin; j < w.x.end; ++j) {
            const auto value = number(x[i * width + j]);
            if (value > number(x[best]) || value != value) best = i * width + j;
        }
    return best;
}

// What a mean divides the sum of a window by.
NN_HD inline int64_t divisor_of(const nn_pool_params& p, const Window& w) {
    return p.kind == 2 ? (w.y.end - w.y.begin) * (w.x.end - w.x.begin) : p.y.taps * p.x.taps;
}

// The result for the window at (oy, ox) of the plane x, in the type A of sums.
template <class A, class T, class F>
NN_HD A pooled(const T* x, const nn_pool_params& p, int64_t oy, int64_t ox, F number) {
    const Window w = window_of(p, oy, ox);
    if (p.kind == 0) return number(x[largest_at(x, p.x.in, w, number)]);
    A sum = 0;
    for (int64_t i = w.y.begin; i < w.y.end; ++i)
        for (int64_t j = w.x.begin; j < w.x.end; ++j) sum += number(x[i * p.x.in + j]);
    return sum / A(divisor_of(p, w));
}

}  // namespace nn::NN_TARGET
