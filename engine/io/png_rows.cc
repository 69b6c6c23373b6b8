// PNG files, by libpng. It reports errors by a jump, which crosses no C++ objects here: each
// function that calls it sets the place to jump to.
#include "engine/base/error.h"
#include "engine/io/image.h"

#ifdef NN_IMAGES
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <vector>

namespace nn {

namespace {

constexpr int LONGEST = 1 << 20;           // pixels of a side
constexpr size_t LARGEST_CHUNK = 8 << 20;  // bytes of texts and profiles, which are not used

class PngRows : public ImageRows {
public:
    PngRows(const uint8_t* bytes, size_t size) : at_(bytes), left_(size) {
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, failed, ignore_warning);
        info_ = png_ ? png_create_info_struct(png_) : nullptr;
        try {
            if (!info_) fail("libpng cannot start");
            guarded([this] { read_header(); });
        } catch (...) {
            png_destroy_read_struct(&png_, &info_, nullptr);
            throw;
        }
    }
    ~PngRows() override { png_destroy_read_struct(&png_, &info_, nullptr); }

    void begin() override {
        if (png_get_interlace_type(png_, info_) == PNG_INTERLACE_NONE) return;
        const size_t bytes = size_t(width) * size_t(channels);
        pixels_.resize(size_t(height) * bytes);
        for (size_t y = 0; y < size_t(height); ++y) rows_.push_back(pixels_.data() + y * bytes);
        png_set_read_status_fn(png_, check_stop);
        guarded([this] { png_read_image(png_, rows_.data()); });
    }
    void row(uint8_t* out) override {
        if (rows_.empty()) return guarded([this, out] { png_read_row(png_, out, nullptr); });
        std::memcpy(out, rows_[next_++], size_t(width) * size_t(channels));
    }
    void end() override {
        guarded([this] { png_read_end(png_, nullptr); });
    }

private:
    // f may not own anything.
    template <class F> void guarded(F f) {
        if (setjmp(jump_)) throw Error(message_);
        f();
    }
    [[noreturn]] static void failed(png_structp png, const char* text) {
        auto* const self = static_cast<PngRows*>(png_get_error_ptr(png));
        std::strncpy(self->message_, text, sizeof self->message_ - 1);
        longjmp(self->jump_, 1);
    }
    static void ignore_warning(png_structp, const char*) {}
    // libpng calls it after each row.
    static void check_stop(png_structp png, png_uint_32, int) {
        if (static_cast<PngRows*>(png_get_io_ptr(png))->must_stop())
            png_error(png, "decoding was cancelled");
    }
    static void read(png_structp png, uint8_t* out, size_t bytes) {
        auto* const self = static_cast<PngRows*>(png_get_io_ptr(png));
        if (bytes > self->left_) png_error(png, "the file ends too early");
        std::memcpy(out, self->at_, bytes);
        self->at_ += bytes;
        self->left_ -= bytes;
    }
    void read_header() {
        png_set_read_fn(png_, this, read);
        png_set_user_limits(png_, LONGEST, LONGEST);
        png_set_chunk_malloc_max(png_, LARGEST_CHUNK);
        png_read_info(png_, info_);
        png_set_strip_16(png_);
        png_set_expand(png_);  // palettes to RGB, 1 to 4 bits to 8, transparent colours to alpha
        png_set_interlace_handling(png_);
        png_read_update_info(png_, info_);
        height = int(png_get_image_height(png_, info_));
        width = int(png_get_image_width(png_, info_));
        channels = png_get_channels(png_, info_);
    }

    const uint8_t* at_;
    size_t left_;
    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    jmp_buf jump_;
    char message_[200] = "";
    std::vector<uint8_t> pixels_;  // of an interlaced file
    std::vector<uint8_t*> rows_;
    size_t next_ = 0;
};

}  // namespace

std::unique_ptr<ImageRows> open_png(const uint8_t* bytes, size_t size) {
    return std::make_unique<PngRows>(bytes, size);
}

}  // namespace nn
#else
std::unique_ptr<nn::ImageRows> nn::open_png(const uint8_t*, size_t) {
    fail("this nnlua was built without libpng; install libpng-dev and build it again");
}
#endif
