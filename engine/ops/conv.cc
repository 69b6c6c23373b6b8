// Convolutions over images and their gradients. Tiles are cut along the images only; images in one
// tile are cut for the workers, so that they share the work.
#include "kernels/params/conv.h"

#include <algorithm>
#include <cmath>

#include "engine/graph/context.h"
#include "engine/ops/op.h"
#include "engine/ops/window.h"
#include "engine/rules/rules.h"

namespace nn {
namespace {

const std::vector<Attribute> window_attributes = {
    {"stride", "ints", "1", "distance between windows; one number, or {rows, columns}"},
    {"padding", "ints", "0",
     "zeros around x: one number, {rows, columns} or {top, bottom, left, right}; or same = true"},
    {"same", "bool", "false", "as much padding as gives y the size of x; the stride must be 1"},
    {"dilation", "ints", "1", "distance between the elements of a window"},
    {"groups", "int", "1", "group i of the outputs reads group i of the channels only"},
};

// Checks x and weight; images: those of the whole x.
nn_conv_params params_of(const Call& c) {
    const Tensor &x = c.in("x"), &weight = c.in("weight");
    c.need_float("x");
    c.need_dtype("weight", x.dtype());
    c.need(x.rank() == 4, "x is {}; (images, channels, height, width) is needed", x);
    c.need(weight.rank() == 4,
           "weight is {}; (outputs, channels / groups, height, width) is needed", weight);
    const int64_t groups = c.integer("groups");
    c.need(groups > 0 && x.dim(1) % groups == 0 && weight.dim(0) % groups == 0,
           "groups is {}; it must divide the {} channels and the {} outputs", groups, x.dim(1),
           weight.dim(0));
    c.need(weight.dim(1) == x.dim(1) / groups,
           "x is {}, weight is {}; with groups = {} weight must be (outputs, {}, height, width)", x,
           weight, groups, x.dim(1) / groups);
    const Dims stride = pair(c, "stride");
    c.need(!c.flag("same") || stride == Dims{1, 1}, "same padding needs a stride of 1, not {}",
           stride);
    nn_conv_params p{x.dim(0), x.dim(1), weight.dim(0), groups, {}, {}, true, settings().tf32};
    set_window(c, x, {{weight.dim(2), weight.dim(3)}, stride, pair(c, "dilation"), c.flag("same")},
               p.y, p.x);
    return p;
}

// FLOPs for each element of the result.
double depth_flops(const nn_conv_params& p) {
    return 2.0 * double(p.channels / p.groups * p.y.taps * p.x.taps);
}

// The cuts of the images.
Cuts cuts_of(const nn_conv_params& p, const Tensor& x) {
    constexpr double least = 1 << 24;  // FLOPs of a tile: some tenths of a millisecond of a core
    if (x.grid().tiles(0) > 1) return x.grid().axes[0];
    const double flops = depth_flops(p) * double(p.outputs * p.y.out * p.x.out);
    const auto enough = int64_t(std::ceil(least / flops));  // images of a tile
    const int64_t workers = workers_in_use();
    return cut_evenly(p.images, std::max((p.images + workers - 1) / workers, enough));
}

Grid grid_of(const Cuts& images, const Dims& shape) { return Grid::whole(shape).with(0, images); }

Dims result_shape(const nn_conv_params& p) { return {p.images, p.outputs, p.y.out, p.x.out}; }

// The task of tile i of y, which has the cuts of x and dy.
void emit(TaskBuilder builder, nn_conv_params p, const Tensor& y, int64_t i) {
    const Dims extent = y.block(i).extent;
    p.images = extent[0];
    builder.params(p).emit(i, extent, depth_flops(p));
}

void run_conv2d(Call& c) {
    nn_conv_params p = params_of(c);
    const Tensor &bias = c.in("bias"), &x_in = c.in("x");
    c.need_tensor("bias", {p.outputs}, x_in.dtype());
    const Cuts images = cuts_of(p, x_in);
    const Tensor x = retile(x_in, grid_of(images, x_in.shape())),
                 weight = whole_tensor(c.in("weight")), whole_bias = whole_tensor(bias),
                 y(grid_of(images, result_shape(p)), x.dtype());
    for (int64_t i = 0; i < y.tiles(); ++i)
        emit(task("conv2d", x.dtype())
                 .use({writes(y, i), reads(x, i), reads(weight, 0), reads(whole_bias, 0)}),
             p, y, i);
    c.result(y);
}

const OpRegistrar conv2d = Op{
    .doc = R"(conv2d(x, weight, bias?) -> y
y[n, o, i, j] = bias[o] + the sum of weight[o, c, k, l] x[n, c, i stride + k, j stride + l], the
cross-correlation that PyTorch calls convolution, for x (images, channels, height, width) and weight
(outputs, channels / groups, height, width). Errors: sizes that do not fit; a window larger than the
padded x.
    nn.ones(1, 1, 3, 3):conv2d(nn.ones(1, 1, 2, 2)):reshape(2, 2)  --> {{4, 4}, {4, 4}})",
    .attributes = window_attributes,
    .samples = {"{x={2,3,5,4}, weight={4,3,3,2}, bias={4}}",
                "{x={3,4,6,5}, weight={6,2,3,3}, padding=1, stride={2,1}, groups=2}",
                "{x={1,2,5,5}, weight={3,2,2,2}, bias={3}, padding={1,0,0,2}, dilation=2}",
                "{x={2,2,4,5}, weight={3,2,3,2}, same=true}"},
    .run = run_conv2d,
    .category = "convolution",
};

void check_backward(const Call& c, const nn_conv_params& p) {
    const Tensor& weight = c.in("weight");
    const Dtype sums = accumulator(weight.dtype());
    c.need_tensor("dy", result_shape(p), weight.dtype());
    c.need_tensor("dweight", weight.shape(), sums);
    c.need_tensor("dbias", {p.outputs}, sums);
    c.need(!c.flag("bias") || !c.in("dweight") == !c.in("dbias"),
           "dweight and dbias are given together");
}

void run_conv2d_backward(Call& c) {
    nn_conv_params p = params_of(c);
    check_backward(c, p);
    const Cuts images = cuts_of(p, c.in("x"));
    const Tensor x = retile(c.in("x"), grid_of(images, c.in("x").shape())),
                 dy = retile(c.in("dy"), grid_of(images, result_shape(p))),
                 weight = whole_tensor(c.in("weight"));
    const bool need_dx = c.flag("need_dx"), has_bias = c.flag("bias"),
               into = is_one_tile(c.in("dweight")) && (!has_bias || is_one_tile(c.in("dbias")));
    const Dtype sums = accumulator(x.dtype());
    const Tensor dx = need_dx ? Tensor(x.grid(), x.dtype()) : Tensor(),
                 dweight = into ? c.in("dweight") : Tensor(Grid::whole(weight.shape()), sums),
                 dbias = !has_bias ? Tensor()
                         : into    ? c.in("dbias")
                                   : Tensor(Grid::whole({p.outputs}), sums);
    for (int64_t i = 0; i < dy.tiles(); ++i) {
        if (need_dx)
            emit(task("conv2d_input_backward", x.dtype())
                     .use({writes(dx, i), reads(dy, i), reads(weight, 0)}),
                 p, dy, i);
        p.first = i == 0 && !into;
        emit(task("conv2d_weight_backward", x.dtype())
                 .use({adds(dweight, 0, p.first), dbias ? adds(dbias, 0, p.first) : absent(),
                       reads(dy, i), reads(x, i)}),
             p, dy, i);
    }
    c.results = {dx, added_to(c.in("dweight"), dweight), added_to(c.in("dbias"), dbias)};
}

std::vector<Attribute> backward_attributes() {
    std::vector<Attribute> out = window_attributes;
    out.push_back({"bias", "bool", "true", "the layer has a bias"});
    out.push_back({"need_dx", "bool", "true", "compute dx"});
    return out;
}

const OpRegistrar conv2d_backward = Op{
    .doc = R"(conv2d_backward(dy, x, weight,
dweight+weight, dbias+bias) -> dx?, dweight, dbias?
The gradients of conv2d. dweight and dbias of a bf16 layer are f32. If they are given, the gradients
are added to them in place.
    local dy, w = nn.ones(1, 1, 2, 2), nn.ones(1, 1, 2, 2)
    nn.conv2d_backward(dy, nn.ones(1, 1, 3, 3), w):reshape(9)  --> {1, 2, 1, 2, 4, 2, 1, 2, 1})",
    .attributes = backward_attributes(),
    .samples = {"{dy={2,4,3,3}, x={2,3,5,4}, weight={4,3,3,2}}",
                "{dy={3,6,3,5}, x={3,4,6,5}, weight={6,2,3,3}, padding=1, stride={2,1}, groups=2, "
                "bias=false}"},
    .gradient_of = "conv2d",
    .run = run_conv2d_backward,
    .kernels = {"conv2d_input_backward", "conv2d_weight_backward"},
};

}  // namespace
}  // namespace nn
