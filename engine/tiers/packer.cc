#include "engine/tiers/packer.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "engine/base/interrupts.h"
#include "engine/tiers/slot_table.h"

namespace nn {

Packer::Packer(const Line& line, const Stays& stays, uint32_t blocks, bool has_margins)
    : line_(line),
      stays_(stays),
      blocks_(blocks),
      moments_(moments_of(line)),
      has_margins_(has_margins),
      packing_(blocks, moments_) {}

bool Packer::Later::operator()(const Waiting& a, const Waiting& b) const {
    if (a.first != b.first) return a.first < b.first;
    if (a.second.blocks != b.second.blocks) return a.second.blocks < b.second.blocks;
    return std::tie(a.second.from, a.second.uses) > std::tie(b.second.from, b.second.uses);
}

std::optional<std::vector<PlacedStay>> Packer::pack(const std::vector<Stay>& all) {
    for (const Stay& stay : all) {
        const uint32_t slot = stays_.demanded_slot(stay);
        if (slot == no_slot)
            push(stay);
        else
            add(stay, use_of(stay, 0), slot);
    }
    while (!queue_.empty()) {
        check_interrupt();
        const Stay stay = queue_.top().second;
        queue_.pop();
        if (!put(stay) && !put_parts(stay) && !force(stay) && !force_task(stay))
            return std::nullopt;
    }
    return placed();
}

Packing::Use Packer::use_of(const Stay& stay, double share) const {
    const Period core = stays_.period(stay);
    if (!has_margins_ || stay.is_closed) return {core, 0, 0, 0, 0, 0, 0, 0};
    uint32_t before = stays_.use(stay, 0).before, after = stays_.use(stay, stay.count - 1).after;
    before = std::min(before, moments_ - core.count);
    after = std::min(after, moments_ - core.count - before);
    return {core, uint32_t(share * before), uint32_t(share * after), before, after, 0, 0, 0};
}

void Packer::add(const Stay& stay, Packing::Use use, uint32_t slot) {
    use.begin = slot, use.end = slot + stay.blocks;
    packing_.add(use);
    placed_.push_back({stay, slot, moments_, moments_});
}

// With as large a share as possible of its margins, and of those of others around it.
bool Packer::put(const Stay& stay) {
    const bool is_long = stays_.period(stay).count * 8 >= moments_;
    packing_.search_in(packing_.period_of(use_of(stay, 1)));
    for (const double share : {1.0, 0.5, 0.25, 0.1, 0.0}) {
        const Packing::Use use = use_of(stay, share);
        const Period period = packing_.period_of(use);
        const uint32_t slot = packing_.find(period, stay.blocks, is_long, share);
        if (slot == no_slot) continue;
        if (share < 1) trim(period, slot, slot + stay.blocks);
        add(stay, use, slot);
        return true;
    }
    return false;
}

// Shortens the margins of others that reach into the period.
void Packer::trim(const Period& period, uint32_t begin, uint32_t end) {
    for (const Packing::Use& used : packing_.used_in(period)) {
        if (used.end <= begin || end <= used.begin) continue;
        const uint32_t core = used.core.begin, core_end = core + used.core.count;
        const uint32_t room_before = (core + 2 * moments_ - period.begin - period.count) % moments_,
                       room_after = (period.begin + 2 * moments_ - core_end) % moments_;
        packing_.set_margins(used.number, std::min(used.before, room_before),
                             std::min(used.after, room_after));
    }
}

bool Packer::put_parts(const Stay& stay) {
    const auto parts = stays_.parts(stay);
    for (const Stay& part : parts) push(part);
    return !parts.empty();
}

// Places a single use where the tiles in its way are not used at that moment: they lose margins, or
// leave memory until their next use.
bool Packer::force(const Stay& stay) {
    const auto costs = costs_at(stay.from);
    const uint32_t slot = cheapest(costs, stay.blocks);
    if (slot == no_slot) return false;
    clear(stay.from, slot, slot + stay.blocks);
    add(stay, use_of(stay, 0), slot);
    return true;
}

// The same if other tiles that the task uses are in the way: they get slots side by side.
bool Packer::force_task(const Stay& stay) {
    std::vector<Stay> uses{stay};
    uint64_t blocks = stay.blocks;
    for (const Packing::Use& used : packing_.used_in({stay.from, 1})) {
        const Stay other = placed_[used.number].stay;
        const auto role = stays_.role_at(other, stay.from);
        if (role.kind != Stays::Role::use) continue;
        keep_parts(used.number, stay.from, role.index, other.count - role.index - 1);
        uses.push_back(stays_.part(other, role.index, 1));
        blocks += other.blocks;
    }
    if (blocks > blocks_) return false;
    uint32_t slot = cheapest(costs_at(stay.from), uint32_t(blocks));
    if (slot == no_slot) return false;
    clear(stay.from, slot, slot + uint32_t(blocks));
    for (const Stay& use : uses) {
        add(use, use_of(use, 0), slot);
        slot += use.blocks;
    }
    return true;
}

// A load for each block, and more if its tile is used again soon; less for a loss of margins.
std::vector<Packer::Cost> Packer::costs_at(uint32_t moment) {
    constexpr double of_margin = 0.1;
    std::vector<Cost> out;
    for (const Packing::Use& used : packing_.used_in({moment, 1})) {
        const Stay& stay = placed_[used.number].stay;
        const auto [kind, index] = stays_.role_at(stay, moment);
        double cost = of_margin;
        if (kind == Stays::Role::use) cost = std::numeric_limits<double>::infinity();
        if (kind == Stays::Role::gap) {
            const bool is_short = stays_.use(stay, index).must_stay;
            cost = (is_short ? 4 : 1) + 16.0 / (1 + stays_.gap_after(stay, index));
        }
        out.push_back({used.begin, used.end, cost * stay.blocks});
    }
    return out;
}

// The first block of the memory that is free at the least cost, or no_slot.
uint32_t Packer::cheapest(const std::vector<Cost>& costs, uint32_t blocks) const {
    uint32_t best = no_slot;
    double least = std::numeric_limits<double>::infinity();
    const auto try_at = [&](int64_t begin) {
        if (begin < 0 || begin + blocks > blocks_) return;
        const auto first = std::partition_point(costs.begin(), costs.end(),
                                                [&](const Cost& c) { return c.end <= begin; });
        double cost = 0;
        for (auto at = first; at != costs.end() && at->begin < begin + blocks; ++at)
            cost += at->cost;
        if (cost < least) least = cost, best = uint32_t(begin);
    };
    try_at(int64_t(blocks_) - blocks);
    for (const Cost& c : costs) try_at(c.end), try_at(int64_t(c.begin) - blocks);
    try_at(0);
    return best;
}

// Nothing in this memory is used at the moment itself.
void Packer::clear(uint32_t moment, uint32_t begin, uint32_t end) {
    for (const Packing::Use& used : packing_.used_in({moment, 1}))
        if (used.begin < end && begin < used.end) leave(used.number, moment);
}

void Packer::leave(uint32_t number, uint32_t moment) {
    const Packing::Use& used = packing_.use(number);
    const Stay& stay = placed_[number].stay;
    const auto [kind, index] = stays_.role_at(stay, moment);
    if (kind == Stays::Role::gap)
        keep_parts(number, moment, index + 1, stay.count - index - 1);
    else
        trim({moment, 1}, used.begin, used.end);
}

// Cuts a stay at a moment. The uses before and after it keep the slot.
void Packer::keep_parts(uint32_t number, uint32_t moment, uint32_t uses_before,
                        uint32_t uses_after) {
    const PlacedStay whole = placed_[number];
    const Packing::Use old = packing_.use(number);
    const auto keep = [&](uint32_t first, uint32_t count) {
        if (count == 0) return;
        const Stay part = stays_.part(whole.stay, first, count);
        Packing::Use use = use_of(part, 1);
        const bool begins = !whole.stay.is_closed && first == 0,
                   ends = !whole.stay.is_closed && first + count == whole.stay.count;
        const uint32_t to = use.core.begin + use.core.count,
                       room_before = (use.core.begin + 2 * moments_ - moment - 1) % moments_,
                       room_after = (moment + 2 * moments_ - to) % moments_;
        use.before = begins ? old.before : std::min(use.before, room_before);
        use.after = ends ? old.after : std::min(use.after, room_after);
        add(part, use, whole.slot);
    };
    packing_.remove(number);
    const uint32_t first_after = whole.stay.count - uses_after;
    if (whole.stay.is_closed) return keep(first_after, uses_before + uses_after);
    keep(0, uses_before);
    keep(first_after, uses_after);
}

// The stays that are left, with their room. They take their slots from each other in the order of
// their first uses; in the second round, from those at the end of the run before.
std::vector<PlacedStay> Packer::placed() const {
    std::vector<PlacedStay> out;
    for (uint32_t number = 0; number < placed_.size(); ++number)
        if (packing_.use(number).core.count > 0) out.push_back(placed_[number]);
    std::sort(out.begin(), out.end(), [](const PlacedStay& a, const PlacedStay& b) {
        return std::tie(a.stay.from, a.slot) < std::tie(b.stay.from, b.slot);
    });
    const auto limit_room = [&](PlacedStay& before, PlacedStay& after) {
        const uint32_t between = (after.stay.from + moments_ - before.stay.to - 1) % moments_;
        after.room_before = std::min(after.room_before, between);
        before.room_after = std::min(before.room_after, between);
    };
    SlotTable table;
    std::vector<PlacedStay*> last;  // of each slot in the table
    for (int round = 0; round < 2; ++round)
        for (PlacedStay& p : out) {
            const uint32_t slot = table.number_of(p.slot, p.stay.blocks);
            last.resize(table.count(), nullptr);
            for (uint32_t other : table.claim(slot)) limit_room(*last[other], p);
            PlacedStay* const before = std::exchange(last[slot], &p);
            if (before && before != &p) limit_room(*before, p);
        }
    return out;
}

}  // namespace nn
