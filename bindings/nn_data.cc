// The C API, images.
#include "bindings/nn_data.h"

#include <cstring>

#include "bindings/handles.h"

using namespace nn;
using namespace nn::capi;

namespace {

ImageSettings settings_of(const nn_image_form_t& form) {
    if (form.channels != 1 && form.channels != 3)
        fail("images of %d channels; 1 (grey) or 3 (RGB) are possible", form.channels);
    if (form.height < 1 || form.width < 1 || form.height > 1 << 15 || form.width > 1 << 15)
        fail("images of %d x %d pixels; sides of 1 to 32768 are possible", form.height, form.width);
    if (form.fit < 0 || form.fit > 2) fail("the fit of images is %d; it must be 0 to 2", form.fit);
    return {form.channels, form.height, form.width, ImageSettings::Fit(form.fit)};
}

}  // namespace

extern "C" {

int nn_image_size(const char* path, int32_t* height, int32_t* width) {
    return guard([&] {
        const ImageSize size = image_size(&given(path, "path"));
        given(height, "height") = size.height;
        given(width, "width") = size.width;
    });
}

int nn_images_new(const nn_image_form_t* form, int32_t threads, nn_ref* queue) {
    return guard([&] {
        given(queue, "queue") = {0, 0};
        if (threads < 0 || threads > 256)
            fail("%d threads decode images; 1 to 256, or 0 for one per CPU, are possible", threads);
        const ImageSettings settings = settings_of(given(form, "form"));
        *queue = new_ref(std::make_shared<Images>(settings, threads, form->bytes != 0));
    });
}

int nn_images_push(const nn_ref* queue, const char* paths, int32_t count) {
    return guard([&] {
        if (count < 1) fail("a batch of %d images", count);
        std::vector<std::string> list;
        for (const char* path = &given(paths, "paths"); int32_t(list.size()) < count;
             path += std::strlen(path) + 1)
            list.push_back(path);
        images_of(queue).queue.push(std::move(list));
    });
}

int nn_images_pop(const nn_ref* queue, void* out, int64_t bytes) {
    return guard([&] {
        Images& images = images_of(queue);
        const auto pixels = images.queue.pop();
        const size_t size = images.bytes ? 1 : sizeof(float);
        if (!out || bytes != int64_t(pixels.size() * size))
            fail("%lld bytes for images that take %zu", (long long)bytes, pixels.size() * size);
        if (images.bytes) return void(std::memcpy(out, pixels.data(), pixels.size()));
        float* const to = static_cast<float*>(out);
        for (size_t i = 0; i < pixels.size(); ++i) to[i] = float(pixels[i]) / 255;
    });
}

}  // extern "C"
