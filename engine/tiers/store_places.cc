#include "engine/tiers/store_places.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

namespace nn {
namespace {

// A tile that is below in a part, from its first transfer to its last: numbers of steps.
struct Stay {
    uint32_t tile, begin, end;
};

class Assigner {
public:
    explicit Assigner(const std::vector<const RunPlan*>& parts) : parts_(parts) {
        const size_t tiles = parts[0]->line.line.tiles.size();
        out_.of_tile.assign(tiles, StorePlaces::none);
        is_private_.assign(tiles, 1);
        stored_in_.assign(tiles, 0);
        for (const RunPlan* part : parts_) {
            for (uint32_t tile = 0; tile < tiles; ++tile) {
                const auto& of = part->line.line.tiles[tile];
                if (of.before || of.after) is_private_[tile] = 0;
            }
            add_stays(*part);
        }
    }

    StorePlaces assign() {
        for (uint32_t part = 0; part < parts_.size(); ++part)
            for (const Stay& stay : stays_[part])
                if (!is_of_one_part(stay.tile) && !has_place(stay.tile)) share(stay.tile);
        for (uint32_t part = 0; part < parts_.size(); ++part) share_in(part);
        add_idle();
        return std::move(out_);
    }

private:
    // In the order of their beginnings.
    void add_stays(const RunPlan& part) {
        const Line& line = part.line.line;
        const auto bit = 1u << stays_.size();
        std::vector<Stay>& stays = stays_.emplace_back();
        std::vector<uint32_t>& number = numbers_.emplace_back(line.tiles.size());
        const auto note = [&](uint32_t tile, uint32_t step) {
            if (!(stored_in_[tile] & bit)) {
                stored_in_[tile] |= bit;
                number[tile] = uint32_t(stays.size());
                stays.push_back({tile, step, 0});
            }
            stays[number[tile]].end = step + 1;
        };
        for (uint32_t tile = 0; tile < line.tiles.size(); ++tile)
            if (line.is_placed(tile) && line.tiles[tile].before &&
                part.placement.first[tile] == no_slot)
                note(tile, 0);
        for (uint32_t i = 0; i < part.placement.steps.size(); ++i)
            if (part.placement.steps[i].kind != Placement::run)
                note(part.placement.steps[i].index, i);
    }
    bool is_in(uint32_t tile, uint32_t part) const { return stored_in_[tile] >> part & 1; }
    const Stay& stay(uint32_t tile, uint32_t part) const {
        return stays_[part][numbers_[part][tile]];
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

    // Places for tiles with values from before the runs that no run moves: whatever created the
    // values, or uses them between the runs, may store them.
    void add_idle() {
        const Line& first = parts_[0]->line.line;
        for (uint32_t tile = 0; tile < first.tiles.size(); ++tile)
            if (first.is_placed(tile) && first.tiles[tile].before && !has_place(tile))
                out_.of_tile[tile] = new_place(bytes_of(tile));
    }

    // Temporaries share a place if none of their stays in any part overlap.
    void share(uint32_t tile) {
        uint32_t& out = out_.of_tile[tile];
        if (!is_private_[tile]) {
            out = new_place(bytes_of(tile));
            return;
        }
        auto& places = shared_[bytes_of(tile)];
        auto at = std::find_if(places.begin(), places.end(), [&](const Shared& place) {
            for (uint32_t part = 0; part < parts_.size(); ++part)
                if (is_in(tile, part) && place.free_from[part] > stay(tile, part).begin)
                    return false;
            return true;
        });
        if (at == places.end()) {
            places.push_back({new_place(bytes_of(tile)), {}});
            at = places.end() - 1;
        }
        out = at->number;
        for (uint32_t part = 0; part < parts_.size(); ++part)
            if (is_in(tile, part)) at->free_from[part] = stay(tile, part).end;
    }

    // The same for tiles of one part, which are many. A tile takes the place that became free
    // first, so that its store waits for no load.
    void share_in(uint32_t part) {
        using FreePlace = std::pair<uint32_t, uint32_t>;  // the step from which it is free, number
        using Queue = std::priority_queue<FreePlace, std::vector<FreePlace>, std::greater<>>;
        std::map<int64_t, Queue> queues;
        for (const auto& [bytes, places] : shared_)
            for (const Shared& place : places)
                queues[bytes].push({place.free_from[part], place.number});
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
                shared_[bytes].push_back({out, {}});
            }
            queue.push({stay.end, out});
        }
    }

    static constexpr size_t most_parts = 5;
    struct Shared {
        uint32_t number;                             // of the place
        std::array<uint32_t, most_parts> free_from;  // by part: a step
    };
    const std::vector<const RunPlan*>& parts_;
    std::vector<std::vector<Stay>> stays_;           // by part
    std::vector<std::vector<uint32_t>> numbers_;     // by part and tile: of its stay
    std::vector<char> is_private_;                   // of each tile: it has no value between parts
    std::vector<uint32_t> stored_in_;                // parts that store each tile, as bits
    std::map<int64_t, std::vector<Shared>> shared_;  // by bytes
    StorePlaces out_;
};

}  // namespace

int64_t StorePlaces::all_bytes() const {
    return std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
}

StorePlaces store_places(const ProgramPlan& plan) {
    std::vector<const RunPlan*> parts;
    for (const RunPlan* run : {&plan.first, &plan.next, &plan.iteration, &plan.tail, &plan.last})
        if (!run->line.line.tiles.empty()) parts.push_back(&run->lowest());
    return Assigner(parts).assign();
}

static size_t beyond_disk = 0;
size_t plans_beyond_disk() { return beyond_disk; }

bool fits_on_disk(const RunPlan& run, const PlanLimits& limits) {
    if (limits.disk == 0 || !limits.below.empty()) return true;
    const bool fits = Assigner({&run}).assign().all_bytes() <= limits.disk;
    beyond_disk += !fits;
    return fits;
}

int64_t bytes_beyond_disk(const ProgramPlan& plan, const PlanLimits& limits) {
    if (limits.disk == 0 || plan.below.size() < limits.below.size()) return 0;
    const int64_t out = std::max<int64_t>(0, store_places(plan).all_bytes() - limits.disk);
    beyond_disk += out > 0;
    return out;
}

}  // namespace nn
