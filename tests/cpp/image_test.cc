// Images: resampling, and the C API's checks. tests/lua/files/images.lua compares pixels with
// Pillow's.
#include <numeric>
#include <vector>

#include "bindings/nn_data.h"
#include "engine/io/resampled.h"
#include "tests/cpp/capi_test.h"

using namespace nn;
using namespace nn::capi_test;

namespace {

std::vector<uint8_t> resampled(const std::vector<uint8_t>& rows, int height, int width,
                               int to_height, int to_width, int channels = 1) {
    Resampled result(channels, Taps(height, 0, height, to_height), Taps(width, 0, width, to_width));
    for (int y = 0; y < height; ++y) result.add_row(rows.data() + y * width * channels);
    std::vector<uint8_t> out(size_t(to_height) * size_t(to_width) * size_t(channels));
    result.write(out.data());
    return out;
}

}  // namespace

TEST_CASE("weights of a resampled position sum to one, and none is outside the image") {
    for (int from : {1, 2, 7, 100})
        for (int to : {1, 3, 7, 250}) {
            const Taps taps(from, 0, from, to);
            REQUIRE(taps.ranges.size() == size_t(to));
            for (const auto& range : taps.ranges) {
                REQUIRE(range.first >= 0);
                REQUIRE(range.count >= 1);
                REQUIRE(range.first + range.count <= from);
                const float* const w = taps.weights.data() + range.weights;
                REQUIRE(std::accumulate(w, w + range.count, 0.0) == Approx(1).margin(1e-6));
            }
        }
}

TEST_CASE("an image of the same size is unchanged, and channels become planes") {
    const std::vector<uint8_t> pixels{0, 10, 20, 30, 255, 50, 1, 2, 3, 4, 5, 6};
    CHECK(resampled(pixels, 3, 4, 3, 4) == pixels);
    const std::vector<uint8_t> planes{0, 30, 1, 4, 10, 255, 2, 5, 20, 50, 3, 6};
    CHECK(resampled(pixels, 2, 2, 2, 2, 3) == planes);
}

TEST_CASE("a smaller image averages, and a constant one stays constant") {
    const std::vector<uint8_t> stripes{0, 100, 0, 100, 0, 100, 0, 100};
    for (uint8_t value : resampled(stripes, 1, 8, 1, 2))  // the filter ends at the edges
        CHECK(std::abs(int(value) - 50) <= 5);
    const std::vector<uint8_t> constant(30, 200);
    CHECK(resampled(constant, 5, 6, 13, 3) == std::vector<uint8_t>(39, 200));
}

TEST_CASE("the C API refuses images that cannot be, and handles of other things") {
    nn_ref ref{};
    nn_image_form_t form{3, 4, 4, 0, 0};
    CHECK_REFUSED(nn_images_new(nullptr, 1, &ref), "form is NULL");
    CHECK_REFUSED(nn_images_new(&form, 1, nullptr), "queue is NULL");
    CHECK_REFUSED(nn_images_new(&form, -1, &ref), "-1 threads");
    form.channels = 2;
    CHECK_REFUSED(nn_images_new(&form, 1, &ref), "images of 2 channels");
    form = {3, 0, 4, 0, 0};
    CHECK_REFUSED(nn_images_new(&form, 1, &ref), "images of 0 x 4 pixels");
    form = {3, 4, 4, 3, 0};
    CHECK_REFUSED(nn_images_new(&form, 1, &ref), "the fit of images is 3");
    form.fit = 1;
    CHECK_REFUSED(nn_images_push(&ref, "a.png", 1), "not a live queue of images");
    REQUIRE_OK(nn_images_new(&form, 2, &ref));
    float out[48];
    CHECK_REFUSED(nn_images_pop(&ref, out, sizeof out), "no images were requested");
    CHECK_REFUSED(nn_images_push(&ref, nullptr, 1), "paths is NULL");
    CHECK_REFUSED(nn_images_push(&ref, "a.png", 0), "a batch of 0 images");
    REQUIRE_OK(nn_images_push(&ref, "/none.png\0/other.png", 2));
    REQUIRE_OK(nn_images_push(&ref, "/third.png", 1));
    CHECK_REFUSED(nn_images_pop(&ref, out, sizeof out), "'/none.png': No such file");
    CHECK_REFUSED(nn_images_pop(&ref, out, sizeof out), "'/third.png': No such file");
    for (int i = 0; i < 50; ++i) REQUIRE_OK(nn_images_push(&ref, "/a.png\0/b.png\0/c.png", 3));
    nn_release(&ref);  // while threads decode
    int32_t height, width;
    CHECK_REFUSED(nn_image_size(nullptr, &height, &width), "path is NULL");
    CHECK_REFUSED(nn_image_size("/none.png", &height, &width), "No such file");
}
