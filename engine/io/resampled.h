// Resamples an image by rows with a triangle filter, which is as wide as the pixels of the result:
// the weights are those of Pillow's BILINEAR.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nn {

// For each position of the result, the source positions that it averages, and their weights.
struct Taps {
    struct Range {
        int first, count;
        size_t weights;  // of the first one
    };
    std::vector<Range> ranges;
    std::vector<float> weights;
    // `size` positions for the part of `from` source positions that begins at `start`.
    Taps(int from, double start, double length, int size);
};

class Resampled {
public:
    Resampled(int channels, Taps vertical, Taps horizontal);  // channels: 1 or 3
    void add_row(const uint8_t* pixels);  // in order from the top; interleaved channels
    void write(uint8_t* out) const;       // (channels, height, width)

private:
    const int channels_;
    const Taps vertical_, horizontal_;
    std::vector<float> row_, sums_;  // (width, channels), (height, width, channels)
    int y_ = 0;                      // of the next row
    size_t first_ = 0;               // row of the result that needs it
};

}  // namespace nn
