// The check of two levels together: it replays the submitted steps on symbols, from the tasks on
// the GPU down to the disk. Each write of a task gives its tile a new value.
#include <iterator>
#include <map>

#include "engine/base/progress.h"
#include "engine/tiers/check.h"
#include "engine/tiers/levels.h"

namespace nn {
namespace {

class Walk {
public:
    Walk(const RunPlan& upper, const RunPlan& lower)
        : upper_(upper),
          lower_(lower),
          line_(upper.line.line),
          values_(line_.tiles.size(), 0),
          copies_(line_.tiles.size(), 0),
          on_disk_(line_.tiles.size(), -1),
          reads_left_(reads_of_values(line_)) {}

    void run() {
        begin();
        uint32_t transfers = 0;
        for (const LevelStep& step : merged_steps(upper_, &lower_)) {
            still_working();
            if (step.is_lower)
                transfer_below(*step.step);
            else if (step.step->kind == Placement::run)
                run_task(step.step->index);
            else
                transfer(*step.step, step.slot_below), ++transfers;
        }
        if (transfers != lower_.line.tasks.size())
            broken("%zu transfers of the upper level are planned in the lower one, but %u exist",
                   lower_.line.tasks.size(), transfers);
        end();
    }

private:
    struct Content {
        uint32_t end;  // block
        uint32_t tile;
        int64_t value;
    };
    struct Level {
        const char* name;
        uint32_t blocks;
        std::map<uint32_t, Content> contents;  // by first block
    };

    bool is_placed(uint32_t tile) const { return line_.is_placed(tile); }
    bool needs(uint32_t tile, int64_t value) const {
        const auto& reads = reads_left_[tile];
        if (value != values_[tile]) return false;
        const bool is_last = size_t(value) + 1 == reads.size();
        return reads[size_t(value)] > 0 || (is_last && line_.tiles[tile].after);
    }
    bool holds(const Level& level, uint32_t tile, uint32_t slot) const {
        const auto at = level.contents.find(slot);
        return at != level.contents.end() && at->second.tile == tile &&
               at->second.value == values_[tile];
    }
    void need(const Level& level, uint32_t tile, uint32_t slot, const char* why) const {
        if (!holds(level, tile, slot))
            broken("slot %u of the %s level does not hold tile %u, which %s", slot, level.name,
                   tile, why);
    }
    void put(Level& level, uint32_t tile, uint32_t slot) {
        const uint64_t end = uint64_t(slot) + line_.tiles[tile].blocks;
        if (slot == no_slot || end > level.blocks)
            broken("tile %u has no slot in the %s level", tile, level.name);
        auto& contents = level.contents;
        auto at = contents.upper_bound(slot);
        if (at != contents.begin() && std::prev(at)->second.end > slot) --at;
        while (at != contents.end() && at->first < end) {
            const Content lost = at->second;
            at = contents.erase(at);
            drop(lost);
        }
        contents[slot] = {uint32_t(end), tile, values_[tile]};
        ++copies_[tile];
    }
    void drop(const Content& lost) {
        if (lost.value != values_[lost.tile]) return;
        const bool is_only = --copies_[lost.tile] == 0 && on_disk_[lost.tile] != lost.value;
        if (is_only && needs(lost.tile, lost.value))
            broken("the only value of tile %u is lost", lost.tile);
    }

    void begin() {
        for (uint32_t tile = 0; tile < line_.tiles.size(); ++tile) {
            if (!is_placed(tile) || !line_.tiles[tile].before) continue;
            if (upper_.placement.first[tile] != no_slot)
                put(gpu_, tile, upper_.placement.first[tile]);
            else if (lower_.placement.first[tile] != no_slot)
                put(ram_, tile, lower_.placement.first[tile]);
            else
                on_disk_[tile] = 0;
        }
    }
    void run_task(uint32_t task) {
        const auto first = line_.accesses.first[task], last = line_.accesses.first[task + 1];
        for (uint32_t i = first; i < last; ++i) {
            const auto& [tile, mode] = line_.accesses.list[i];
            if (!is_placed(tile) || mode == Mode::write) continue;
            need(gpu_, tile, upper_.placement.slots[i], "a task reads");
            --reads_left_[tile][size_t(values_[tile])];
        }
        for (uint32_t i = first; i < last; ++i) {
            const auto& [tile, mode] = line_.accesses.list[i];
            if (!is_placed(tile) || mode == Mode::read) continue;
            ++values_[tile];
            copies_[tile] = 0;
            put(gpu_, tile, upper_.placement.slots[i]);
        }
    }
    void transfer(const Placement::Step& step, uint32_t slot_below) {
        const bool loads = step.kind == Placement::load;
        if (loads) {
            need(ram_, step.index, slot_below, "is loaded");
            put(gpu_, step.index, step.slot);
        } else {
            need(gpu_, step.index, step.slot, "is stored");
            put(ram_, step.index, slot_below);
        }
    }
    void transfer_below(const Placement::Step& step) {
        const uint32_t tile = step.index;
        if (step.kind == Placement::store) {
            need(ram_, tile, step.slot, "is stored");
            on_disk_[tile] = values_[tile];
            return;
        }
        if (on_disk_[tile] != values_[tile])
            broken("tile %u is loaded, but the disk does not have its value", tile);
        put(ram_, tile, step.slot);
    }
    void end() const {
        for (uint32_t tile = 0; tile < line_.tiles.size(); ++tile) {
            if (!is_placed(tile) || !line_.tiles[tile].after) continue;
            const uint32_t above = upper_.placement.last[tile], below = lower_.placement.last[tile];
            if (above != no_slot)
                need(gpu_, tile, above, "must be there at the end");
            else if (below != no_slot)
                need(ram_, tile, below, "must be there at the end");
            else if (on_disk_[tile] != values_[tile])
                broken("the value of tile %u is not on the disk at the end", tile);
        }
    }

    const RunPlan& upper_;
    const RunPlan& lower_;
    const Line& line_;
    Level gpu_{"upper", upper_.placement.blocks, {}}, ram_{"lower", lower_.placement.blocks, {}};
    std::vector<int64_t> values_;  // of each tile now
    std::vector<int> copies_;      // slots of both levels that hold this value
    std::vector<int64_t> on_disk_;
    std::vector<std::vector<uint32_t>> reads_left_;  // of each value of each tile
};

}  // namespace

std::string check_levels(const RunPlan& upper, const RunPlan& lower) {
    return problem_of([&] { Walk(upper, lower).run(); });
}

}  // namespace nn
