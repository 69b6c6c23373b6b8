#include "engine/tiers/store_places.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

namespace nn {
namespace {

// A tile that is below in a part, from its first store to its last load: numbers of steps.
struct Stay {
    uint32_t tile, begin, end;
};

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
        for (const RunPlan* part : parts_) {
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                const auto& of = part->line.line.tiles[tile];
                if (of.before || of.after) is_private_[tile] = 0;
            }
            for (const Stay& stay : stays_.emplace_back(stays_in(*part)))
                stored_in_[stay.tile] |= 1u << (stays_.size() - 1);
        }
    }

    StorePlaces assign() {
        for (uint32_t part = 0; part < parts_.size(); ++part)
            for (const Stay& stay : stays_[part])
                if (!is_of_one_part(stay.tile) && !has_place(stay.tile)) share_by_part(stay.tile);
        for (uint32_t part = 0; part < parts_.size(); ++part) share_by_time(part);
        return std::move(out_);
    }

private:
    // In the order of their beginnings.
    static std::vector<Stay> stays_in(const RunPlan& part) {
        const Line& line = part.line.line;
        std::vector<Stay> out;
        std::vector<uint32_t> number(line.tiles.size(), StorePlaces::none);  // in `out`
        const auto note = [&](uint32_t tile, uint32_t step) {
            if (number[tile] == StorePlaces::none) {
                number[tile] = uint32_t(out.size());
                out.push_back({tile, step, 0});
            }
            out[number[tile]].end = step + 1;
        };
        for (uint32_t tile = 0; tile < line.tiles.size(); ++tile)
            if (line.is_placed(tile) && line.tiles[tile].before &&
                part.placement.first[tile] == no_slot)
                note(tile, 0);
        for (uint32_t i = 0; i < part.placement.steps.size(); ++i)
            if (part.placement.steps[i].kind != Placement::run)
                note(part.placement.steps[i].index, i);
        return out;
    }

    // Whether one part alone stores it, and it has no value between parts.
    bool is_of_one_part(uint32_t tile) const {
        return is_private_[tile] && (stored_in_[tile] & (stored_in_[tile] - 1)) == 0;
    }
    bool has_place(uint32_t tile) const { return out_.of_tile[tile] != StorePlaces::none; }
    int64_t bytes_of(uint32_t tile) const { return parts_[0]->line.line.bytes_of(tile); }
    uint32_t new_place(int64_t bytes) {
        out_.bytes.push_back(bytes);
        return uint32_t(out_.bytes.size() - 1);
    }

    // Temporaries that are stored in different parts share places.
    void share_by_part(uint32_t tile) {
        uint32_t& out = out_.of_tile[tile];
        if (!is_private_[tile]) {
            out = new_place(bytes_of(tile));
            return;
        }
        auto& places = shared_[bytes_of(tile)];
        const auto at = std::find_if(places.begin(), places.end(), [&](const Shared& place) {
            return !(place.parts & stored_in_[tile]);
        });
        if (at == places.end()) {
            out = new_place(bytes_of(tile));
            places.push_back({out, stored_in_[tile]});
        } else {
            out = at->number;
            at->parts |= stored_in_[tile];
        }
    }

    // So do those whose stays in a part follow each other. The place that is free for the longest
    // time is taken, so that no store waits for a load.
    void share_by_time(uint32_t part) {
        using FreePlace = std::pair<uint32_t, uint32_t>;  // the step from which it is free, number
        using Queue = std::priority_queue<FreePlace, std::vector<FreePlace>, std::greater<>>;
        std::map<int64_t, Queue> queues;
        for (const auto& [bytes, places] : shared_)
            for (const Shared& place : places)
                if (!(place.parts >> part & 1)) queues[bytes].push({0, place.number});
        for (const Stay& stay : stays_[part]) {
            if (has_place(stay.tile)) continue;
            const int64_t bytes = bytes_of(stay.tile);
            Queue& queue = queues[bytes];
            uint32_t& out = out_.of_tile[stay.tile];
            if (!queue.empty() && queue.top().first <= stay.begin) {
                out = queue.top().second;
                queue.pop();
            } else {
                out = new_place(bytes);
                shared_[bytes].push_back({out, 0});
            }
            queue.push({stay.end, out});
        }
    }

    struct Shared {
        uint32_t number;  // of the place
        uint32_t parts;   // those, as bits, in which a tile of several parts uses it
    };
    std::vector<const RunPlan*> parts_;
    std::vector<std::vector<Stay>> stays_;           // by part
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
