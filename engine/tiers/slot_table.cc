#include "engine/tiers/slot_table.h"

#include <algorithm>
#include <iterator>

namespace nn {

static uint64_t key_of(uint32_t begin, uint32_t blocks) { return uint64_t(begin) << 32 | blocks; }

uint32_t SlotTable::number_of(uint32_t begin, uint32_t blocks) {
    const auto [at, is_new] = numbers_.try_emplace(key_of(begin, blocks), count());
    if (is_new) slots_.push_back({begin, begin + blocks});
    return at->second;
}

uint32_t SlotTable::number_of(uint32_t begin, uint32_t blocks, int64_t bytes) {
    const std::pair part{key_of(begin, blocks), bytes};
    const auto [at, is_new] = numbers_of_parts_.try_emplace(part, count());
    if (is_new) slots_.push_back({begin, begin + blocks});
    return at->second;
}

const std::vector<uint32_t>& SlotTable::claim(uint32_t slot) {
    overlapping_.clear();
    const auto [begin, end] = slots_[slot];
    auto at = owners_.upper_bound(begin);
    if (at != owners_.begin() && std::prev(at)->second.end > begin) --at;
    if (at != owners_.end() && at->first == begin && at->second.slot == slot &&
        at->second.end == end)
        return overlapping_;
    while (at != owners_.end() && at->first < end) {
        const auto [first, owner] = *at;
        if (owner.slot != slot) overlapping_.push_back(owner.slot);
        at = owners_.erase(at);
        if (first < begin) owners_[first] = {begin, owner.slot};
        if (owner.end > end) at = owners_.insert({end, {owner.end, owner.slot}}).first;
    }
    owners_[begin] = {end, slot};
    std::sort(overlapping_.begin(), overlapping_.end());
    overlapping_.erase(std::unique(overlapping_.begin(), overlapping_.end()), overlapping_.end());
    return overlapping_;
}

}  // namespace nn
