#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "engine/tiers/placement.h"
#include "engine/tiers/slot_table.h"
#include "engine/tiers/stays.h"

namespace nn {
namespace {

struct Placed {
    Stay stay;
    uint32_t slot;
    // Moments before the stay, and after it, in which nothing else needs the slot.
    uint32_t room_before, room_after;
};

// Slots for all stays. Long stays are packed from the bottom of the memory, short ones from the
// top, so that they do not lie in each other's way.
class Packer {
public:
    // limits: of the margins of a stay in which nothing else may use its slot.
    Packer(const Stays& stays, uint32_t blocks, uint32_t moments, const MarginLimits& limits)
        : stays_(stays), moments_(moments), limits_(limits), packing_(blocks, moments) {}

    // Returns false if some do not fit.
    bool pack(const std::vector<Stay>& all) {
        for (const Stay& stay : all) {
            const uint32_t slot = stays_.demanded_slot(stay);
            if (slot == no_slot)
                push(stay);
            else
                add(stay, stays_.period(stay), slot);
        }
        while (!queue_.empty()) {
            const Stay stay = queue_.top().second;
            queue_.pop();
            if (!put(stay) && !put_parts(stay)) without_slots.push_back(stay);
        }
        if (!without_slots.empty()) return false;
        measure_room();
        return true;
    }

    std::vector<Placed> placed;
    std::vector<Stay> without_slots;

private:
    using Waiting = std::pair<uint32_t, Stay>;  // with its number of moments
    struct Later {
        bool operator()(const Waiting& a, const Waiting& b) const {
            if (a.first != b.first) return a.first < b.first;
            if (a.second.blocks != b.second.blocks) return a.second.blocks < b.second.blocks;
            return std::tie(a.second.from, a.second.uses) > std::tie(b.second.from, b.second.uses);
        }
    };
    void add(const Stay& stay, const Period& period, uint32_t slot) {
        packing_.add(period, slot, stay.blocks);
        placed.push_back({stay, slot, moments_, moments_});
    }
    // If possible with its margins, so that nothing waits for the slot.
    bool put(const Stay& stay) {
        const bool is_long = stays_.period(stay).count * 8 >= moments_;
        std::vector<Period> periods;
        for (const double margins : {1.0, 0.5, 0.25, 0.1, 0.0}) {
            const Period period = stays_.period(stay, margins, &limits_);
            if (periods.empty() || period.count < periods.back().count) periods.push_back(period);
        }
        const auto [slot, period] = packing_.find(periods, stay.blocks, is_long);
        if (slot != no_slot) add(stay, period, slot);
        return slot != no_slot;
    }
    void push(const Stay& stay) { queue_.push({stays_.period(stay).count, stay}); }
    bool put_parts(const Stay& stay) {
        const auto parts = stays_.parts(stay);
        for (const Stay& part : parts) push(part);
        return !parts.empty();
    }

    // Stays take their slots from each other in the order of their first uses; in the second round,
    // from those at the end of the run before.
    void measure_room() {
        std::vector<Placed*> stays;
        for (Placed& p : placed) stays.push_back(&p);
        std::sort(stays.begin(), stays.end(),
                  [](const Placed* a, const Placed* b) { return a->stay.from < b->stay.from; });
        SlotTable table;
        std::vector<Placed*> last;  // of each slot in the table
        for (int round = 0; round < 2; ++round)
            for (Placed* p : stays) {
                const uint32_t slot = table.number_of(p->slot, p->stay.blocks);
                last.resize(table.count(), nullptr);
                for (uint32_t other : table.claim(slot)) limit_room(*last[other], *p);
                Placed* const before = std::exchange(last[slot], p);
                if (before && before != p) limit_room(*before, *p);
            }
    }
    void limit_room(Placed& before, Placed& after) const {
        const uint32_t between = (after.stay.from + moments_ - before.stay.to - 1) % moments_;
        after.room_before = std::min(after.room_before, between);
        before.room_after = std::min(before.room_after, between);
    }

    const Stays& stays_;
    const uint32_t moments_;
    const MarginLimits& limits_;
    Packing packing_;
    std::priority_queue<Waiting, std::vector<Waiting>, Later> queue_;
};

// The steps of a run whose stays have slots.
class Writer {
public:
    Writer(const Line& line, const Stays& stays, uint32_t blocks) : line_(line), stays_(stays) {
        out_.blocks = blocks;
        out_.slots.assign(line.accesses.list.size(), no_slot);
        out_.first.assign(line.tiles.size(), no_slot);
        if (line.cut != UINT32_MAX) out_.at_cut = out_.first;
        loads_.resize(moments_of(line));
        stores_.resize(moments_of(line));
    }

    Placement write(const std::vector<Placed>& placed, const LineEnds* ends) {
        for (const Placed& p : placed) add(p);
        out_.last = out_.first;
        if (ends) out_.first = ends->before, out_.last = ends->after;
        for (auto& loads : loads_)
            std::stable_sort(loads.begin(), loads.end(), [](const Placed* a, const Placed* b) {
                return a->stay.from < b->stay.from;
            });
        const uint32_t tasks = line_.accesses.tasks();
        for (uint32_t moment = 0; moment <= tasks; ++moment) {
            for (const Placed* p : stores_[moment ? moment - 1 : tasks])
                transfer(*p, false, moment + p->stay.tail / 2);
            for (const Placed* p : loads_[moment]) transfer(*p, true, moment + p->stay.lead);
            if (moment < tasks) out_.steps.push_back({Placement::run, moment, no_slot, 0});
        }
        return std::move(out_);
    }

private:
    void add(const Placed& p) {
        for (uint32_t i = 0; i < p.stay.count; ++i) {
            const TileUse& use = stays_.use(p.stay, i);
            if (use.moment < line_.accesses.tasks()) out_.slots[use.access] = p.slot;
        }
        const uint32_t moments = moments_of(line_);
        if (p.stay.loads) loads_[(p.stay.from + moments - p.stay.lead) % moments].push_back(&p);
        if (p.stay.stores) stores_[p.stay.to].push_back(&p);
        if (p.stay.at_boundary) out_.first[p.stay.tile] = p.slot;
        if (p.stay.at_cut) out_.at_cut[p.stay.tile] = p.slot;
    }
    void transfer(const Placed& p, bool loads, uint32_t due) {
        out_.steps.push_back(
            {loads ? Placement::load : Placement::store, p.stay.tile, p.slot, due});
        (loads ? out_.loaded : out_.stored) += p.stay.blocks * slot_block;
    }

    const Line& line_;
    const Stays& stays_;
    Placement out_;
    std::vector<std::vector<const Placed*>> loads_, stores_;  // by moment
};

// Lets tiles leave memory for a stay that has no slot, where they are unused for the longest time.
// Returns false if there are none.
bool make_room(Retention::Kept& kept, const std::vector<TileUses>& uses, const Line& line,
               const Period& period, uint32_t blocks) {
    struct Gap {
        uint32_t moments, uses, use;
    };
    const uint32_t moments = moments_of(line);
    std::vector<Gap> gaps;
    for (uint32_t u = 0; u < uses.size(); ++u)
        for (uint32_t i = 0; i < uses[u].list.size(); ++i) {
            const uint32_t from = uses[u].list[i].moment + 1,
                           count = moments_between(uses[u].list[i], uses[u].after(i), moments);
            const bool contains = (period.begin + moments - from) % moments + period.count <= count;
            if (kept[u][i] && contains) gaps.push_back({count, u, i});
        }
    std::stable_sort(gaps.begin(), gaps.end(),
                     [](const Gap& a, const Gap& b) { return a.moments > b.moments; });
    uint32_t freed = 0;
    for (size_t i = 0; i < gaps.size() && freed < blocks; ++i) {
        kept[gaps[i].uses][gaps[i].use] = false;
        freed += line.tiles[uses[gaps[i].uses].tile].blocks;
    }
    return freed > 0;
}

}  // namespace

uint32_t slot_blocks(int64_t bytes) {
    const auto blocks = uint64_t((bytes + slot_block - 1) / slot_block);
    uint64_t unit = 1;
    while (unit * 128 <= blocks) unit *= 2;
    return uint32_t((blocks + unit - 1) / unit * unit);
}

std::optional<Placement> place(const Line& line, uint32_t blocks, const Retention& retention,
                               const PlaceOptions& options, const LineEnds* ends,
                               MarginLimits* limits) {
    const std::vector<TileUses>& uses = retention.uses();
    const Stays stays(line, uses, ends);
    Retention::Kept kept = retention.choose(options.share);
    MarginLimits own(uses);
    if (!limits) limits = &own;
    // If nothing is kept between tasks, the tiles of each task lie side by side, so that they
    // certainly fit.
    if (options.share == 0) limits->clear();
    for (;;) {
        Packer packer(stays, blocks, moments_of(line), *limits);
        if (packer.pack(stays.all(kept))) {
            for (Placed& p : packer.placed)
                p.stay = stays.with_lead(p.stay, options.lead, p.room_before, p.room_after);
            return Writer(line, stays, blocks).write(packer.placed, ends);
        }
        bool changed = false;
        for (const Stay& stay : packer.without_slots) {
            const Period period = stays.period(stay);
            changed = limits->reduce(uses, period, moments_of(line)) ||
                      make_room(kept, uses, line, period, stay.blocks) || changed;
        }
        if (!changed) return std::nullopt;
    }
}

}  // namespace nn
