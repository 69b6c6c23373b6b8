// The parameters of convolutions (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// One axis of a window that slides over an image: output o at tap k reads o * stride + k * dilation
// - pad, or 0 outside [0, in).
typedef struct {
    int64_t in, out, taps, stride, dilation, pad;
} nn_window_axis;
// x is (images, channels, y.in, x.in), the result (images, outputs, y.out, x.out), weight (outputs,
// channels / groups, y.taps, x.taps). Group g of the outputs reads group g of the channels.
// tf32: as in nn_gemm_params.
typedef struct {
    int64_t images, channels, outputs, groups;
    nn_window_axis y, x;
    int32_t first, tf32;
} nn_conv_params;
// Pooling of (planes, y.in, x.in), dilation 1. kind: 0 the largest element, 1 the mean with the
// padding, 2 without it.
typedef struct {
    int64_t planes;
    nn_window_axis y, x;
    int32_t kind;
} nn_pool_params;
// </cdef>
