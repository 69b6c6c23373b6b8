#include "engine/tiers/store_places.h"

#include <map>
#include <numeric>
#include <unordered_set>

namespace nn {
namespace {

class Assigner {
public:
    explicit Assigner(const ProgramPlan& plan) : plan_(plan) {
        for (const RunPlan* run :
             {&plan.first, &plan.next, &plan.iteration, &plan.tail, &plan.last})
            if (!run->line.line.tiles.empty())
                parts_.push_back(plan.lower ? plan.below(*run) : run);
        const size_t tiles = plan.lines->tiles().size();
        out_.of_tile.assign(tiles, StorePlaces::none);
        is_private_.assign(tiles, 1);
        for (const RunPlan* part : parts_)
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                const auto& of = part->line.line.tiles[tile];
                if (of.before || of.after) is_private_[tile] = 0;
            }
    }

    StorePlaces assign() {
        for (const RunPlan* part : parts_) {
            const std::vector<uint32_t> tiles = stored_in(*part);
            std::unordered_set<uint32_t> taken;
            for (uint32_t tile : tiles) taken.insert(out_.of_tile[tile]);
            for (uint32_t tile : tiles)
                if (out_.of_tile[tile] == StorePlaces::none)
                    taken.insert(out_.of_tile[tile] = place_for(*part, tile, taken));
        }
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

    // Temporaries of one part share the places of those of others.
    uint32_t place_for(const RunPlan& part, uint32_t tile,
                       const std::unordered_set<uint32_t>& taken) {
        const int64_t bytes = part.line.line.bytes_of(tile);
        auto& shared = shared_[bytes];
        for (uint32_t place : shared)
            if (is_private_[tile] && !taken.count(place)) return place;
        const auto place = uint32_t(out_.bytes.size());
        out_.bytes.push_back(bytes);
        if (is_private_[tile]) shared.push_back(place);
        return place;
    }

    const ProgramPlan& plan_;
    std::vector<const RunPlan*> parts_;
    std::vector<char> is_private_;  // of each tile: it has no value between parts
    std::map<int64_t, std::vector<uint32_t>> shared_;
    StorePlaces out_;
};

}  // namespace

int64_t StorePlaces::all_bytes() const {
    return std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
}

StorePlaces store_places(const ProgramPlan& plan) { return Assigner(plan).assign(); }

}  // namespace nn
