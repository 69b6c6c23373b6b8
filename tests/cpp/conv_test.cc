// Convolutions and pooling against plain loops in double, and their gradients as adjoints:
// <conv(x, w), dy> = <x, dx> = <w, dw>.
#include "kernels/params/conv.h"

#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

nn_window_axis axis(int64_t in, int64_t taps, int64_t stride, int64_t dilation, int64_t before,
                    int64_t after) {
    const int64_t reach = (taps - 1) * dilation;
    return {in, (in + before + after - reach - 1) / stride + 1, taps, stride, dilation, before};
}

const nn_conv_params convolutions[] = {
    {2, 3, 4, 1, axis(5, 3, 1, 1, 0, 0), axis(4, 2, 1, 1, 0, 0), 1, 0},
    {3, 4, 6, 2, axis(6, 3, 2, 1, 1, 1), axis(5, 3, 1, 1, 1, 2), 1, 0},
    {1, 2, 3, 1, axis(7, 2, 1, 3, 0, 1), axis(9, 3, 3, 2, 2, 0), 1, 0},
    {2, 3, 3, 3, axis(1, 1, 1, 1, 0, 0), axis(12, 4, 1, 1, 3, 3), 1, 0},
    {2, 1, 2, 1, axis(3, 5, 4, 1, 4, 4), axis(2, 1, 1, 1, 3, 3), 1, 0},  // windows of padding only
};
// More than the memory for columns on a CPU and than the workspace of the test's GPU.
const nn_conv_params large{1, 16, 2, 1, axis(80, 3, 1, 1, 1, 1), axis(60, 3, 1, 1, 1, 1), 1, 0};
// More than the memory for columns on a CPU for each row.
const nn_conv_params wide{1, 100, 2, 1, axis(2, 2, 1, 1, 0, 1), axis(1360, 4, 2, 1, 1, 1), 1, 0};

size_t x_size(const nn_conv_params& p) { return size_t(p.images * p.channels * p.y.in * p.x.in); }
size_t y_size(const nn_conv_params& p) { return size_t(p.images * p.outputs * p.y.out * p.x.out); }
size_t weight_size(const nn_conv_params& p) {
    return size_t(p.outputs * p.channels / p.groups * p.y.taps * p.x.taps);
}

// Calls f(position in y, in x, in the weight) for every product.
template <class F> void each_product(const nn_conv_params& p, F f) {
    const int64_t channels = p.channels / p.groups, outputs = p.outputs / p.groups;
    size_t at = 0;
    for (int64_t n = 0; n < p.images; ++n)
        for (int64_t o = 0; o < p.outputs; ++o)
            for (int64_t i = 0; i < p.y.out; ++i)
                for (int64_t j = 0; j < p.x.out; ++j, ++at)
                    for (int64_t c = 0; c < channels; ++c)
                        for (int64_t k = 0; k < p.y.taps; ++k)
                            for (int64_t l = 0; l < p.x.taps; ++l) {
                                const int64_t y = i * p.y.stride + k * p.y.dilation - p.y.pad;
                                const int64_t x = j * p.x.stride + l * p.x.dilation - p.x.pad;
                                if (y < 0 || y >= p.y.in || x < 0 || x >= p.x.in) continue;
                                const int64_t channel = o / outputs * channels + c;
                                f(at,
                                  size_t(((n * p.channels + channel) * p.y.in + y) * p.x.in + x),
                                  size_t(((o * channels + c) * p.y.taps + k) * p.x.taps + l));
                            }
}

void check_convolution(const Variant& v, nn_conv_params p) {
    Random random(1);
    Tile x = v.tile(random.values(x_size(p))), weight = v.tile(random.values(weight_size(p)));
    Tile bias = v.tile(random.values(size_t(p.outputs))), dy = v.tile(random.values(y_size(p)));
    Tile y = v.output(y_size(p)), plain = v.output(y_size(p)), dx = v.output(x_size(p));
    const Values start = random.values(weight.size()), bias_start = random.values(bias.size());
    Tile dweight = v.sums(start), dbias = v.sums(bias_start), fresh = v.sum_output(weight.size());
    CHECK(run(v, "conv2d", p, {&y, &x, &weight, &bias}) == "");
    CHECK(run(v, "conv2d", p, {&plain, &x, &weight, nullptr}) == "");
    CHECK(run(v, "conv2d_input_backward", p, {&dx, &dy, &weight}) == "");
    CHECK(run(v, "conv2d_weight_backward", p, {&fresh, nullptr, &dy, &x}) == "");
    p.first = 0;
    CHECK(run(v, "conv2d_weight_backward", p, {&dweight, &dbias, &dy, &x}) == "");

    const size_t area = size_t(p.y.out * p.x.out);
    Values sums(y.size(), 0), want_dx(x.size(), 0), want_dw(weight.size(), 0), with_bias;
    Values want_db = bias_start;
    each_product(p, [&](size_t at, size_t from, size_t w) {
        sums[at] += x[from] * weight[w];
        want_dx[from] += dy[at] * weight[w];
        want_dw[w] += dy[at] * x[from];
    });
    for (size_t i = 0; i < y.size(); ++i) {
        with_bias.push_back(sums[i] + bias[i / area % bias.size()]);
        want_db[i / area % bias.size()] += dy[i];
    }
    const double sum_tolerance = 60 * v.sum_eps(), tolerance = v.eps() + sum_tolerance;
    check_close("y", y, with_bias, tolerance, 4);
    check_close("y without bias", plain, sums, tolerance, 4);
    check_close("dx", dx, want_dx, tolerance + v.eps(), 4);
    check_close("dweight", fresh, want_dw, sum_tolerance, 10);
    for (size_t i = 0; i < want_dw.size(); ++i) want_dw[i] += start[i];
    check_close("dweight added", dweight, want_dw, sum_tolerance, 10);
    check_close("dbias added", dbias, want_db, sum_tolerance, 10);
}

TEST_CASE("conv2d and its gradients equal plain loops") {
    each_variant([](const Variant& v) {
        for (const nn_conv_params& p : convolutions) check_convolution(v, p);
    });
}

TEST_CASE("conv2d works in parts of an image or a row whose columns exceed the memory for them") {
    each_variant(
        [](const Variant& v) {
            check_convolution(v, large);
            if (!v.cuda) check_convolution(v, wide);
        },
        {Dtype::f32});
}

TEST_CASE("conv2d gives the same bits for one tile of images and for several") {
    each_variant([](const Variant& v) {
        if (v.cuda) return;
        Random random(2);
        nn_conv_params p = convolutions[1];
        Tile x = v.tile(random.values(x_size(p))), dy = v.tile(random.values(y_size(p)));
        Tile whole = v.sum_output(weight_size(p)), parts = v.sum_output(weight_size(p));
        CHECK(run(v, "conv2d_weight_backward", p, {&whole, nullptr, &dy, &x}) == "");
        const int64_t images = p.images;
        p.images = 1;
        for (int64_t i = 0; i < images; ++i) {
            const auto image = [&](const Tile& tile) {
                const Values all = tile.values();
                const auto size = int64_t(all.size()) / images;
                return v.tile(Values(all.begin() + i * size, all.begin() + (i + 1) * size));
            };
            Tile one = image(x), slope = image(dy);
            p.first = i == 0;
            Tile before = parts;
            CHECK(run(v, "conv2d_weight_backward", p, {&parts, nullptr, &slope, &one}) == "");
        }
        CHECK(whole.values() == parts.values());
    });
}

const nn_pool_params pools[] = {
    {2, axis(6, 2, 2, 1, 0, 0), axis(5, 2, 2, 1, 0, 0), 0},
    {2, axis(7, 3, 2, 1, 1, 1), axis(5, 3, 1, 1, 1, 1), 0},
    {2, axis(4, 2, 3, 1, 1, 1), axis(9, 4, 2, 1, 2, 2), 0},
};

// The positions of a window inside the image, row by row.
std::vector<size_t> window(const nn_pool_params& p, int64_t plane, int64_t i, int64_t j) {
    std::vector<size_t> out;
    for (int64_t k = 0; k < p.y.taps; ++k)
        for (int64_t l = 0; l < p.x.taps; ++l) {
            const int64_t y = i * p.y.stride + k - p.y.pad, x = j * p.x.stride + l - p.x.pad;
            if (y >= 0 && y < p.y.in && x >= 0 && x < p.x.in)
                out.push_back(size_t((plane * p.y.in + y) * p.x.in + x));
        }
    return out;
}

TEST_CASE("pooling and its gradient equal plain loops, also for equal elements and NaN") {
    each_variant([](const Variant& v) {
        Random random(3);
        for (nn_pool_params p : pools)
            for (p.kind = 0; p.kind < 3; ++p.kind) {
                const auto size = size_t(p.planes * p.y.in * p.x.in);
                const auto count = size_t(p.planes * p.y.out * p.x.out);
                Tile x = v.tile(random.integers(size, -3, 3)), dy = v.tile(random.values(count));
                if (p.kind == 0) x.set(5, NAN);
                Tile y = v.output(count), dx = v.output(size);
                CHECK(run(v, "pool2d", p, {&y, &x}) == "");
                CHECK(run(v, "pool2d_backward", p, {&dx, &dy, &x}) == "");
                Values want, slope(size, 0);
                for (size_t at = 0; at < count; ++at) {
                    const auto area = size_t(p.y.out * p.x.out);
                    const auto inside = window(p, int64_t(at / area), int64_t(at % area) / p.x.out,
                                               int64_t(at % area) % p.x.out);
                    const double taps =
                        double(p.kind == 2 ? int64_t(inside.size()) : p.y.taps * p.x.taps);
                    size_t best = inside[0];
                    double sum = 0;
                    for (size_t i : inside) {
                        if (x[i] > x[best] || std::isnan(x[i])) best = i;
                        sum += x[i];
                        if (p.kind) slope[i] += dy[at] / taps;
                    }
                    want.push_back(p.kind ? sum / taps : x[best]);
                    if (!p.kind) slope[best] += dy[at];
                }
                check_close("y", y, want, p.kind ? v.eps() + 4 * v.sum_eps() : 0);
                check_close("dx", dx, slope, v.eps() + 16 * v.sum_eps());
            }
    });
}

}  // namespace
