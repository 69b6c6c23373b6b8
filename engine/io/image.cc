#include "engine/io/image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/io/resampled.h"

namespace nn {

namespace {

constexpr int64_t MOST_BYTES = int64_t(1) << 28;   // of a file
constexpr int64_t MOST_PIXELS = int64_t(1) << 26;  // of an image: 256 MB if it is interlaced

std::vector<uint8_t> contents_of(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail("%s", std::strerror(errno));
    const std::unique_ptr<const int, void (*)(const int*)> closer(&fd,
                                                                  [](const int* f) { close(*f); });
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) fail("it is no regular file");
    if (info.st_size > MOST_BYTES)
        fail("it has %s; at most %s are read", human_bytes(double(info.st_size)).c_str(),
             human_bytes(double(MOST_BYTES)).c_str());
    std::vector<uint8_t> bytes(static_cast<size_t>(info.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count = read(fd, bytes.data() + done, bytes.size() - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) fail("%s", count < 0 ? std::strerror(errno) : "it was truncated");
        done += size_t(count);
    }
    return bytes;
}

std::unique_ptr<ImageRows> open_rows(const std::vector<uint8_t>& bytes) {
    static const uint8_t png[] = {137, 'P', 'N', 'G', 13, 10, 26, 10}, jpeg[] = {255, 216, 255};
    const auto begins = [&](const auto& magic) {
        return bytes.size() >= sizeof magic && std::memcmp(bytes.data(), magic, sizeof magic) == 0;
    };
    if (!begins(png) && !begins(jpeg)) fail("it is neither a PNG nor a JPEG file");
    auto rows =
        begins(png) ? open_png(bytes.data(), bytes.size()) : open_jpeg(bytes.data(), bytes.size());
    const int64_t pixels = int64_t(rows->height) * rows->width;
    if (pixels > MOST_PIXELS)
        fail("it has %d x %d pixels; at most %lld are read", rows->height, rows->width,
             (long long)MOST_PIXELS);
    return rows;
}

// Converts pixels to 1 or 3 channels, and drops alpha. Grey is Pillow's: ITU-R 601-2, rounded.
void convert(const uint8_t* from, int channels, int width, int wanted, uint8_t* to) {
    for (int x = 0; x < width; ++x, from += channels) {
        if (channels < 3)
            for (int c = 0; c < wanted; ++c) *to++ = from[0];
        else if (wanted == 3)
            to = std::copy(from, from + 3, to);
        else
            *to++ = uint8_t((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >> 16);
    }
}

struct Window {
    double y, x, height, width;
};

// The part of a file that the result shows.
Window window_of(const ImageRows& rows, const ImageSettings& s) {
    Window all{0, 0, double(rows.height), double(rows.width)};
    if (s.fit != ImageSettings::crop) return all;
    const double scale = std::min(all.height / s.height, all.width / s.width);
    const double height = scale * s.height, width = scale * s.width;
    return {(all.height - height) / 2, (all.width - width) / 2, height, width};
}

void decode(const std::string& path, const ImageSettings& s, uint8_t* out,
            const std::atomic<bool>& stopped) {
    const auto bytes = contents_of(path);
    const auto rows = open_rows(bytes);
    rows->stopped = &stopped;
    if (s.fit == ImageSettings::exact && (rows->height != s.height || rows->width != s.width))
        fail(
            "it has %d x %d pixels, but the others have %d x %d (height x width); give size = "
            "{height, width}, to which all are resized",
            rows->height, rows->width, s.height, s.width);
    const Window part = window_of(*rows, s);
    Resampled result(s.channels, Taps(rows->height, part.y, part.height, s.height),
                     Taps(rows->width, part.x, part.width, s.width));
    std::vector<uint8_t> raw(size_t(rows->width) * size_t(rows->channels));
    std::vector<uint8_t> pixels(size_t(rows->width) * size_t(s.channels));
    rows->begin();
    for (int y = 0; y < rows->height && !stopped; ++y) {
        rows->row(raw.data());
        convert(raw.data(), rows->channels, rows->width, s.channels, pixels.data());
        result.add_row(pixels.data());
    }
    if (stopped) fail("decoding was cancelled");
    rows->end();
    result.write(out);
}

// Adds the path to errors of f.
template <class F> auto named(const std::string& path, F f) {
    try {
        return f();
    } catch (const Error& e) {
        fail("cannot read the image '%s': %s", path.c_str(), e.what());
    }
}

}  // namespace

ImageSize image_size(const std::string& path) {
    return named(path, [&] {
        const auto bytes = contents_of(path);
        const auto rows = open_rows(bytes);
        return ImageSize{rows->height, rows->width};
    });
}

void read_image(const std::string& path, const ImageSettings& settings, uint8_t* out,
                const std::atomic<bool>& stopped) {
    named(path, [&] { decode(path, settings, out, stopped); });
}

}  // namespace nn
