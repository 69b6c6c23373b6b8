// Attributes of windows that slide over images, of conv2d and pool2d.
#pragma once
#include "engine/ops/op.h"
#include "kernels/params/conv.h"

namespace nn {

// The two numbers of an attribute of one number or two, for rows and columns.
Dims pair(const Call& c, const char* attribute);

// The attribute `padding`: before and after rows, then before and after columns.
Dims paddings(const Call& c);

// A window, for rows and columns. same: pads x such that the result has its size, for a stride
// of 1.
struct Sliding {
    Dims size, stride, dilation;
    bool same;
};

// Sets both axes of a window over x (..., rows, columns), with the attribute `padding`. Errors: a
// window larger than the padded x.
void set_window(const Call& c, const Tensor& x, const Sliding& window, nn_window_axis& rows,
                nn_window_axis& columns);

}  // namespace nn
