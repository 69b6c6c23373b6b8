#include <algorithm>
#include <utility>

#include "engine/tiers/packer.h"
#include "engine/tiers/placement.h"

namespace nn {
namespace {

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

    Placement write(const std::vector<PlacedStay>& placed, const LineEnds* ends) {
        for (const PlacedStay& p : placed) add(p);
        out_.last = out_.first;
        if (ends) out_.first = ends->before, out_.last = ends->after;
        for (auto& loads : loads_)
            std::stable_sort(loads.begin(), loads.end(),
                             [](const PlacedStay* a, const PlacedStay* b) {
                                 return a->stay.from < b->stay.from;
                             });
        const uint32_t tasks = line_.accesses.tasks();
        for (uint32_t moment = 0; moment <= tasks; ++moment) {
            for (const PlacedStay* p : stores_[moment ? moment - 1 : tasks])
                transfer(*p, false, moment + p->stay.tail / 2);
            for (const PlacedStay* p : loads_[moment]) transfer(*p, true, moment + p->stay.lead);
            if (moment < tasks) out_.steps.push_back({Placement::run, moment, no_slot, 0});
        }
        return std::move(out_);
    }

private:
    void add(const PlacedStay& p) {
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
    void transfer(const PlacedStay& p, bool loads, uint32_t due) {
        out_.steps.push_back(
            {loads ? Placement::load : Placement::store, p.stay.tile, p.slot, due});
        (loads ? out_.loaded : out_.stored) += p.stay.blocks * slot_block;
    }

    const Line& line_;
    const Stays& stays_;
    Placement out_;
    std::vector<std::vector<const PlacedStay*>> loads_, stores_;  // by moment
};

}  // namespace

uint32_t slot_blocks(int64_t bytes) {
    const auto blocks = uint64_t((bytes + slot_block - 1) / slot_block);
    uint64_t unit = 1;
    while (unit * 128 <= blocks) unit *= 2;
    return uint32_t((blocks + unit - 1) / unit * unit);
}

std::optional<Placement> place(const Line& line, uint32_t blocks, const Retention& retention,
                               const PlaceOptions& options, const LineEnds* ends) {
    const Stays stays(line, retention.uses(), ends);
    // If nothing is kept between tasks, the tiles of each task lie side by side, so that they
    // certainly fit.
    Packer packer(line, stays, blocks, options.share > 0);
    auto placed = packer.pack(stays.all(retention.choose(options.share)));
    if (!placed) return std::nullopt;
    for (PlacedStay& p : *placed)
        p.stay = stays.with_lead(p.stay, options.lead, p.room_before, p.room_after);
    return Writer(line, stays, blocks).write(*placed, ends);
}

}  // namespace nn
