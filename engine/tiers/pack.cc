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
        if (overlap(block.period, period)) taken_.push_back(block);
    };
    for (uint32_t number : long_) take(number);
    if (is_long(period))
        for (uint32_t number = 0; number < all_.size(); ++number) take(number);
    else
        sections_of(period, [&](uint32_t s) {
            for (uint32_t number : short_[s]) take(number);
        });
    std::sort(taken_.begin(), taken_.end(),
              [](const Block& a, const Block& b) { return a.begin < b.begin; });
}

Packing::Found Packing::find(const std::vector<Period>& periods, uint32_t blocks, bool lowest) {
    gather(periods.front());
    for (const Period& period : periods) {
        const uint32_t slot = find_in_gathered(period, blocks, lowest);
        if (slot != no_slot) return {slot, period};
    }
    return {no_slot, {}};
}

uint32_t Packing::find_in_gathered(const Period& period, uint32_t blocks, bool lowest) const {
    uint32_t free = 0, slot = no_slot;  // free: the end of everything before
    const auto use_hole = [&](uint32_t end) {
        const bool fits = end >= free && end - free >= blocks;
        if (fits) slot = lowest ? free : end - blocks;
        return fits && lowest;
    };
    for (const Block& block : taken_) {
        if (!overlap(block.period, period)) continue;
        if (use_hole(block.begin)) return slot;
        free = std::max(free, block.end);
    }
    use_hole(blocks_);
    return slot;
}

}  // namespace nn
