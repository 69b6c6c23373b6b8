#include "engine/tiers/pack.h"

#include <algorithm>
#include <utility>

#include "engine/tiers/placement.h"

namespace nn {

Packing::Packing(uint32_t blocks, uint32_t moments)
    : blocks_(blocks), moments_(moments), sections_(std::min(moments, 256u)), short_(sections_) {}

bool Packing::overlap(const Period& a, const Period& b) const {
    const uint32_t b_after_a = (b.begin + moments_ - a.begin) % moments_,
                   a_after_b = (a.begin + moments_ - b.begin) % moments_;
    return b_after_a < a.count || a_after_b < b.count;
}

template <class Visit> void Packing::sections_of(const Period& period, const Visit& visit) const {
    const auto section = [&](uint64_t moment) {
        return uint32_t(moment % moments_ * sections_ / moments_);
    };
    const uint32_t last = section(period.begin + period.count - 1);
    for (uint32_t s = section(period.begin);; s = (s + 1) % sections_) {
        visit(s);
        if (s == last) return;
    }
}

void Packing::add(const Period& period, uint32_t slot, uint32_t blocks) {
    const auto number = uint32_t(all_.size());
    all_.push_back({period, slot, slot + blocks});
    seen_.push_back(0);
    if (is_long(period))
        long_.push_back(number);
    else
        sections_of(period, [&](uint32_t s) { short_[s].push_back(number); });
}

void Packing::gather(const Period& period) {
    taken_.clear();
    ++searches_;
    const auto take = [&](uint32_t number) {
        if (std::exchange(seen_[number], searches_) == searches_) return;
        const Block& block = all_[number];
        if (overlap(block.period, period)) taken_.push_back({block.begin, block.end});
    };
    for (uint32_t number : long_) take(number);
    if (is_long(period))
        for (uint32_t number = 0; number < all_.size(); ++number) take(number);
    else
        sections_of(period, [&](uint32_t s) {
            for (uint32_t number : short_[s]) take(number);
        });
    std::sort(taken_.begin(), taken_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
}

uint32_t Packing::find(const Period& period, uint32_t blocks, bool lowest) {
    gather(period);
    taken_.push_back({blocks_, blocks_});
    uint32_t free = 0, slot = no_slot;  // free: the end of everything before
    for (const Range& range : taken_) {
        if (range.begin >= free && range.begin - free >= blocks) {
            slot = lowest ? free : range.begin - blocks;
            if (lowest) break;
        }
        free = std::max(free, range.end);
    }
    return slot;
}

}  // namespace nn
