#include "engine/tiers/pack.h"

#include <algorithm>
#include <utility>

#include "engine/tiers/placement.h"

namespace nn {
namespace {

constexpr uint32_t no_link = UINT32_MAX;

}  // namespace

Packing::Packing(uint32_t blocks, uint32_t moments) : blocks_(blocks), moments_(moments) {
    constexpr uint32_t shortest_section = 4;
    uint32_t sections = 0;
    for (uint64_t length = shortest_section;; length *= 4) {
        const auto count = uint32_t((moments + length - 1) / length);
        levels_.push_back({uint32_t(length), sections, count, 0});
        sections += count;
        if (count == 1) break;
    }
    heads_.assign(sections, no_link);
}

bool Packing::overlap(const Period& a, const Period& b) const {
    const uint32_t b_after_a =
                       b.begin >= a.begin ? b.begin - a.begin : b.begin + moments_ - a.begin,
                   a_after_b = b_after_a == 0 ? 0 : moments_ - b_after_a;
    return b_after_a < a.count || a_after_b < b.count;
}

template <class Visit>
void Packing::sections_of(const Level& level, const Period& period, const Visit& visit) const {
    const uint32_t end = period.begin + period.count, first = period.begin / level.moments,
                   last = (std::min(end, moments_) - 1) / level.moments;
    for (uint32_t s = first; s <= last; ++s) visit(level.first + s);
    if (end <= moments_) return;
    const uint32_t last_wrapped = std::min((end - moments_ - 1) / level.moments + 1, first);
    for (uint32_t s = 0; s < last_wrapped; ++s) visit(level.first + s);
}

Period Packing::period_of(const Use& use, double share) const {
    const uint32_t before = std::min(use.before, uint32_t(share * use.most_before)),
                   after = std::min(use.after, uint32_t(share * use.most_after)),
                   begin = use.core.begin;
    return {begin >= before ? begin - before : begin + moments_ - before,
            before + use.core.count + after};
}

uint32_t Packing::add(const Use& use) {
    const auto number = uint32_t(all_.size());
    all_.push_back(use);
    all_.back().number = number;
    seen_.push_back(0);
    const Period period = period_of(use);
    const auto at = std::find_if(levels_.begin(), levels_.end() - 1,
                                 [&](const Level& l) { return l.moments >= period.count; });
    ++at->listed;
    sections_of(*at, period, [&](uint32_t section) {
        links_.push_back({number, heads_[section]});
        heads_[section] = uint32_t(links_.size() - 1);
    });
    return number;
}

void Packing::set_margins(uint32_t number, uint32_t before, uint32_t after) {
    all_[number].before = before, all_[number].after = after;
}

void Packing::search_in(const Period& period) {
    found_.clear();
    ++searches_;
    for (const Level& level : levels_) {
        if (level.listed == 0) continue;
        sections_of(level, period, [&](uint32_t section) {
            for (uint32_t i = heads_[section]; i != no_link; i = links_[i].next) {
                const uint32_t number = links_[i].number;
                if (std::exchange(seen_[number], searches_) == searches_) continue;
                const Use& use = all_[number];
                if (use.core.count > 0 && overlap(period_of(use), period))
                    found_.push_back(uint64_t(use.begin) << 32 | number);
            }
        });
    }
    std::sort(found_.begin(), found_.end());
}

std::vector<Packing::Use> Packing::used_in(const Period& period) {
    search_in(period);
    std::vector<Use> out;
    for (const uint64_t found : found_) out.push_back(all_[uint32_t(found)]);
    return out;
}

uint32_t Packing::find(const Period& period, uint32_t blocks, bool lowest, double share) const {
    uint32_t free = 0, slot = no_slot;  // free: the end of everything before
    const auto use_hole = [&](uint32_t end) {
        const bool fits = end >= free && end - free >= blocks;
        if (fits) slot = lowest ? free : end - blocks;
        return fits && lowest;
    };
    for (const uint64_t found : found_) {
        const Use& use = all_[uint32_t(found)];
        if (use.end <= free) continue;
        if (!overlap(period_of(use, share), period)) continue;
        if (use_hole(use.begin)) return slot;
        free = use.end;
    }
    use_hole(blocks_);
    return slot;
}

}  // namespace nn
