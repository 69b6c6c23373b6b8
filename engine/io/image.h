// Images in PNG and JPEG files, decoded row by row, so that resizing a large one takes little
// memory.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace nn {

// A file that is being decoded to rows of `width` pixels of `channels` bytes: 1 grey, 2 grey and
// alpha, 3 RGB, 4 RGB and alpha. All functions throw Error. Call begin(), then row() `height`
// times, then end(), which finds damage after the last row.
class ImageRows {
public:
    virtual ~ImageRows() = default;
    virtual void begin() = 0;
    virtual void row(uint8_t* out) = 0;
    virtual void end() = 0;
    int height = 0, width = 0, channels = 0;
    // begin() can take many seconds; another thread ends it by this flag.
    const std::atomic<bool>* stopped = nullptr;

protected:
    bool must_stop() const { return stopped && *stopped; }
};
// The bytes must outlive the result.
std::unique_ptr<ImageRows> open_png(const uint8_t* bytes, size_t size);
std::unique_ptr<ImageRows> open_jpeg(const uint8_t* bytes, size_t size);

struct ImageSettings {
    enum Fit { exact, stretch, crop };  // exact: the file must have this size; crop: its centre
    int channels, height, width;        // of the result; channels: 1 or 3
    Fit fit = exact;
    int64_t pixels() const { return int64_t(height) * width; }
    int64_t bytes() const { return channels * pixels(); }
};
struct ImageSize {
    int height, width;
};

// Errors name the file.
ImageSize image_size(const std::string& path);
// Writes (channels, height, width) bytes. Pixels are averaged as Pillow's BILINEAR filter does.
// Ends with an error soon after `stopped` was set.
void read_image(const std::string& path, const ImageSettings& settings, uint8_t* out,
                const std::atomic<bool>& stopped);

}  // namespace nn
