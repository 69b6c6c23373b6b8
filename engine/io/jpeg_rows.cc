// JPEG files, by libjpeg. It reports errors by a jump, as libpng does (png_rows.cc).
#include "engine/base/error.h"
#include "engine/io/image.h"

#ifdef NN_IMAGES
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <csetjmp>

namespace nn {

namespace {

// Of a progressive file. Each scan visits all pixels; cameras and editors write up to 12 scans, and
// a hostile file has as many as it can.
constexpr int MOST_SCANS = 200;
constexpr double MOST_VISITS = double(1 << 30);  // of pixels, a second or two

class JpegRows : public ImageRows {
public:
    JpegRows(const uint8_t* bytes, size_t size) {
        jpeg_.err = jpeg_std_error(&errors_);
        jpeg_.client_data = this;
        errors_.error_exit = failed;
        errors_.emit_message = warned;
        progress_.progress_monitor = check_work;
        try {
            guarded([this, bytes, size] { read_header(bytes, size); });
            if (jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK)
                fail("it is a CMYK JPEG; convert it to RGB");
        } catch (...) {
            jpeg_destroy_decompress(&jpeg_);
            throw;
        }
    }
    ~JpegRows() override { jpeg_destroy_decompress(&jpeg_); }

    void begin() override {
        guarded([this] { jpeg_start_decompress(&jpeg_); });
    }
    void row(uint8_t* out) override {
        guarded([this, out]() mutable { jpeg_read_scanlines(&jpeg_, &out, 1); });
    }
    void end() override {
        guarded([this] { jpeg_finish_decompress(&jpeg_); });
    }

private:
    // f may not own anything.
    template <class F> void guarded(F f) {
        if (setjmp(jump_)) throw Error(message_);
        f();
    }
    static JpegRows& of(j_common_ptr jpeg) { return *static_cast<JpegRows*>(jpeg->client_data); }
    [[noreturn]] static void failed(j_common_ptr jpeg) {
        jpeg->err->format_message(jpeg, of(jpeg).message_);
        longjmp(of(jpeg).jump_, 1);
    }
    // Data that is damaged; libjpeg would go on with grey or wrong pixels.
    static void warned(j_common_ptr jpeg, int level) {
        const int code = jpeg->err->msg_code;
        const bool damaged =
            code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE;
        if (level < 0 && damaged) failed(jpeg);
    }
    // libjpeg calls it for each row of blocks.
    static void check_work(j_common_ptr jpeg) {
        JpegRows& self = of(jpeg);
        const int scans = self.jpeg_.input_scan_number;
        const double visits = double(scans) * self.height * self.width;
        if (scans <= MOST_SCANS && visits <= MOST_VISITS && !self.must_stop()) return;
        std::snprintf(self.message_, sizeof self.message_,
                      self.must_stop()
                          ? "decoding was cancelled"
                          : "%d scans of %d x %d pixels take too long, and it has more",
                      scans - 1, self.height, self.width);
        longjmp(self.jump_, 1);
    }
    void read_header(const uint8_t* bytes, size_t size) {
        jpeg_create_decompress(&jpeg_);
        jpeg_.progress = &progress_;
        jpeg_mem_src(&jpeg_, bytes, size);
        jpeg_read_header(&jpeg_, TRUE);
        height = int(jpeg_.image_height);
        width = int(jpeg_.image_width);
        channels = jpeg_.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
        if (channels == 3) jpeg_.out_color_space = JCS_RGB;
    }

    jpeg_decompress_struct jpeg_{};
    jpeg_error_mgr errors_{};
    jpeg_progress_mgr progress_{};
    jmp_buf jump_;
    char message_[JMSG_LENGTH_MAX] = "";
};

}  // namespace

std::unique_ptr<ImageRows> open_jpeg(const uint8_t* bytes, size_t size) {
    return std::make_unique<JpegRows>(bytes, size);
}

}  // namespace nn
#else
std::unique_ptr<nn::ImageRows> nn::open_jpeg(const uint8_t*, size_t) {
    fail("this nnlua was built without libjpeg; install libjpeg-dev and build it again");
}
#endif
