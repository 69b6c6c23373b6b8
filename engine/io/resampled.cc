#include "engine/io/resampled.h"

#include <algorithm>
#include <cmath>

namespace nn {

Taps::Taps(int from, double start, double length, int size) {
    const double scale = length / size, spread = std::max(scale, 1.0);
    for (int i = 0; i < size; ++i) {
        const double centre = start + (i + 0.5) * scale;
        int first = std::max(0, int(centre - spread + 0.5));
        int last = std::min(from, int(centre + spread + 0.5));
        const auto weight = [&](int x) {
            return std::max(0.0, 1 - std::fabs(x + 0.5 - centre) / spread);
        };
        while (first < last - 1 && weight(first) == 0) ++first;
        while (first < last - 1 && weight(last - 1) == 0) --last;
        double sum = 0;
        for (int x = first; x < last; ++x) sum += weight(x);
        ranges.push_back({first, last - first, weights.size()});
        for (int x = first; x < last; ++x) weights.push_back(float(weight(x) / sum));
    }
}

Resampled::Resampled(int channels, Taps vertical, Taps horizontal)
    : channels_(channels),
      vertical_(std::move(vertical)),
      horizontal_(std::move(horizontal)),
      row_(horizontal_.ranges.size() * size_t(channels)),
      sums_(vertical_.ranges.size() * row_.size()) {}

template <int channels>
static void resample_row(const uint8_t* pixels, const Taps& taps, float* to) {
    for (const Taps::Range& range : taps.ranges) {
        const uint8_t* from = pixels + range.first * channels;
        const float* const weights = taps.weights.data() + range.weights;
        float sums[channels] = {};
        for (int i = 0; i < range.count; ++i, from += channels)
            for (int c = 0; c < channels; ++c) sums[c] += weights[i] * from[c];
        to = std::copy(sums, sums + channels, to);
    }
}

void Resampled::add_row(const uint8_t* pixels) {
    const auto& rows = vertical_.ranges;
    const int y = y_++;
    while (first_ < rows.size() && rows[first_].first + rows[first_].count <= y) ++first_;
    if (first_ == rows.size() || rows[first_].first > y) return;
    (channels_ == 1 ? resample_row<1> : resample_row<3>)(pixels, horizontal_, row_.data());
    for (size_t i = first_; i < rows.size() && rows[i].first <= y; ++i) {
        if (y >= rows[i].first + rows[i].count) continue;
        const float weight = vertical_.weights[rows[i].weights + size_t(y - rows[i].first)];
        float* const sums = sums_.data() + i * row_.size();
        for (size_t k = 0; k < row_.size(); ++k) sums[k] += weight * row_[k];
    }
}

void Resampled::write(uint8_t* out) const {
    const size_t pixels = sums_.size() / size_t(channels_);
    for (int c = 0; c < channels_; ++c)
        for (size_t i = 0; i < pixels; ++i)
            *out++ =
                uint8_t(std::clamp(sums_[i * size_t(channels_) + size_t(c)] + 0.5f, 0.f, 255.f));
}

}  // namespace nn
