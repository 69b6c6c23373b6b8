// Pooling over images and its gradient. The image's axes are in one tile.
#include <algorithm>

#include "engine/ops/op.h"
#include "engine/ops/window.h"
#include "engine/rules/rules.h"
#include "kernels/params/conv.h"

namespace nn {
namespace {

const std::vector<Attribute> attributes = {
    {"size", "ints", "", "of the window; one number, or {rows, columns}"},
    {"stride", "ints", "nil", "distance between windows; by default the size"},
    {"padding", "ints", "0", "around x, at most half of the size; it never is the largest"},
    {"kind", "text", "max", "max, mean, or mean_inside: without the padding"},
};

nn_pool_params params_of(const Call& c) {
    const Tensor& x = c.in("x");
    c.need_float("x");
    c.need(x.rank() >= 3, "x is {}; (..., channels, height, width) is needed", x);
    const Dims size = pair(c, "size");
    const std::string kind = c.text("kind");
    nn_pool_params p{};
    p.kind = kind == "max" ? 0 : kind == "mean" ? 1 : 2;
    c.need(p.kind < 2 || kind == "mean_inside", "kind is '{}'; max, mean or mean_inside is needed",
           kind);
    const Dims stride = c.given("stride") ? pair(c, "stride") : size;
    set_window(c, x, {size, stride, {1, 1}, false}, p.y, p.x);
    const Dims pad = paddings(c);
    c.need(2 * std::max(pad[0], pad[1]) <= size[0] && 2 * std::max(pad[2], pad[3]) <= size[1],
           "padding is {}; it may be at most half of the size {}", c.ints("padding"), size);
    return p;
}

// The grid of x with its image in one tile, and that of the result.
Grid input_grid(const Tensor& x) {
    return x.grid().with(-1, whole(x.dim(-1))).with(int(x.rank()) - 2, whole(x.dim(-2)));
}
Grid result_grid(const Grid& grid, const nn_pool_params& p) {
    return grid.with(-1, whole(p.x.out)).with(int(grid.rank()) - 2, whole(p.y.out));
}

void emit(TaskBuilder builder, nn_pool_params p, const Tensor& x, int64_t i) {
    const Block block = x.block(i);
    p.planes = product(block.extent, 0, block.extent.size() - 2);
    builder.params(p).emit(i, block.extent, 1);
}

void run_pool2d(Call& c) {
    const nn_pool_params p = params_of(c);
    const Tensor x = retile(c.in("x"), input_grid(c.in("x"))),
                 y(result_grid(x.grid(), p), x.dtype());
    for (int64_t i = 0; i < y.tiles(); ++i)
        emit(task("pool2d", x.dtype()).use({writes(y, i), reads(x, i)}), p, x, i);
    c.result(y);
}

const OpRegistrar pool2d = Op{
    .doc = R"(pool2d(x) -> y
The largest element or the mean of every window of x (..., height, width). Errors: a window larger
than the padded x; more padding than half of the window.
    x:reshape(1, 2, 3):pool2d{size = {2, 3}}:item()  --> 6)",
    .attributes = attributes,
    .samples = {"{x={2,3,6,5}, size=2}", "{x={1,2,7,5}, size={3,2}, stride=2, padding={1,0}}",
                "{x={2,5,5}, size=3, stride=1, padding=1, kind='mean'}",
                "{x={2,5,4}, size=3, stride=2, padding=1, kind='mean_inside'}"},
    .run = run_pool2d,
    .category = "convolution",
};

void run_pool2d_backward(Call& c) {
    const nn_pool_params p = params_of(c);
    const Tensor x = retile(c.in("x"), input_grid(c.in("x")));
    const Grid grid = result_grid(x.grid(), p);
    c.need_tensor("dy", grid.shape(), x.dtype());
    const Tensor dy = retile(c.in("dy"), grid), dx(x.grid(), x.dtype());
    for (int64_t i = 0; i < dx.tiles(); ++i)
        emit(task("pool2d_backward", x.dtype()).use({writes(dx, i), reads(dy, i), reads(x, i)}), p,
             x, i);
    c.result(dx);
}

const OpRegistrar pool2d_backward = Op{
    .doc = R"(pool2d_backward(dy, x) -> dx
The gradient of pool2d: to the first largest element of a window, or to all of its elements.
    nn.ones(1, 1, 1):pool2d_backward(x:reshape(1, 2, 3), {size = {2, 3}}):sum():item()  --> 1)",
    .attributes = attributes,
    .samples = {"{dy={2,3,3,2}, x={2,3,6,5}, size=2}",
                "{dy={2,5,5}, x={2,5,5}, size=3, stride=1, padding=1, kind='mean'}"},
    .gradient_of = "pool2d",
    .gradient_in = "x",
    .run = run_pool2d_backward,
};

}  // namespace
}  // namespace nn
