#include "engine/tiers/store_places.h"

#include <map>
#include <numeric>

namespace nn {
namespace {

class Assigner {
public:
    explicit Assigner(const ProgramPlan& plan) {
        for (const RunPlan* run :
             {&plan.first, &plan.next, &plan.iteration, &plan.tail, &plan.last})
            if (!run->line.line.tiles.empty())
                parts_.push_back(plan.lower ? plan.below(*run) : run);
        const size_t tiles = plan.lines->tiles().size();
        out_.of_tile.assign(tiles, StorePlaces::none);
        is_private_.assign(tiles, 1);
        stored_in_.assign(tiles, 0);
        for (const RunPlan* part : parts_)
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                const auto& of = part->line.line.tiles[tile];
                if (of.before || of.after) is_private_[tile] = 0;
            }
    }

    StorePlaces assign() {
        for (size_t part = 0; part < parts_.size(); ++part)
            for (uint32_t tile : stored_in(*parts_[part])) stored_in_[tile] |= 1u << part;
        for (uint32_t tile = 0; tile < stored_in_.size(); ++tile)
            if (stored_in_[tile] != 0) out_.of_tile[tile] = place_for(tile);
        return std::move(out_);
    }

private:
    // The tiles that are below before the part, or that it stores.
    std::vector<uint32_t> stored_in(const RunPlan& part) const {
        std::vector<uint32_t> out;
        std::vector<char> seen(out_.of_tile.size(), 0);
        const auto add = [&](uint32_t tile) {
            if (!seen[tile]) out.push_back(tile), seen[tile] = 1;
        };
        const Line& line = part.line.line;
        for (uint32_t tile = 0; tile < seen.size(); ++tile)
            if (line.is_placed(tile) && line.tiles[tile].before &&
                part.placement.first[tile] == no_slot)
                add(tile);
        for (const Placement::Step& step : part.placement.steps)
            if (step.kind == Placement::store) add(step.index);
        return out;
    }

    // Temporaries that are stored in different parts share places.
    uint32_t place_for(uint32_t tile) {
        const int64_t bytes = parts_[0]->line.line.bytes_of(tile);
        auto& shared = shared_[bytes];
        for (Shared& place : shared)
            if (is_private_[tile] && !(place.parts & stored_in_[tile])) {
                place.parts |= stored_in_[tile];
                return place.number;
            }
        const auto number = uint32_t(out_.bytes.size());
        out_.bytes.push_back(bytes);
        if (is_private_[tile]) shared.push_back({number, stored_in_[tile]});
        return number;
    }

    struct Shared {
        uint32_t number, parts;  // of the place; in which it is in use, as bits
    };
    std::vector<const RunPlan*> parts_;
    std::vector<char> is_private_;                   // of each tile: it has no value between parts
    std::vector<uint32_t> stored_in_;                // parts that store each tile, as bits
    std::map<int64_t, std::vector<Shared>> shared_;  // by bytes
    StorePlaces out_;
};

}  // namespace

int64_t StorePlaces::all_bytes() const {
    return std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
}

StorePlaces store_places(const ProgramPlan& plan) { return Assigner(plan).assign(); }

bool fits_on_disk(const ProgramPlan& plan, const PlanLimits& limits) {
    return limits.disk == 0 || store_places(plan).all_bytes() <= limits.disk;
}

}  // namespace nn
