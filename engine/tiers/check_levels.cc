// The check of all levels together: it replays the submitted steps on symbols, from the tasks down
// to the disk. Each write of a task gives its tile a new value.
#include <algorithm>
#include <iterator>
#include <map>

#include "engine/base/interrupts.h"
#include "engine/tiers/check.h"
#include "engine/tiers/levels.h"

namespace nn {
namespace {

class Walk {
public:
    explicit Walk(const RunPlan& run)
        : run_(run),
          line_(run.line.line),
          values_(line_.tiles.size(), 0),
          copies_(line_.tiles.size(), 0),
          on_disk_(line_.tiles.size(), -1),
          reads_left_(reads_of_values(line_)) {
        for (size_t level = 0; level < run.levels(); ++level)
            levels_.push_back({uint32_t(level), run.level(level).placement.blocks, {}});
    }

    void walk() {
        for (size_t level = 0; level + 1 < levels_.size(); ++level) need_all_transfers(level);
        begin();
        for (const LevelStep& step : merged_steps(run_)) {
            check_interrupt();
            if (step.step->kind == Placement::run)
                run_task(step.step->index);
            else
                transfer(*step.step, step.level, step.slot_below);
        }
        end();
    }

private:
    struct Content {
        uint32_t end;  // block
        uint32_t tile;
        int64_t value;
    };
    struct Level {
        uint32_t number;
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
            broken("slot %u of level %u does not hold tile %u, which %s", slot, level.number, tile,
                   why);
    }
    void put(Level& level, uint32_t tile, uint32_t slot) {
        const uint64_t end = uint64_t(slot) + line_.tiles[tile].blocks;
        if (slot == no_slot || end > level.blocks)
            broken("tile %u has no slot in level %u", tile, level.number);
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

    void need_all_transfers(size_t level) const {
        const auto& steps = run_.level(level).placement.steps;
        const auto transfers = std::count_if(steps.begin(), steps.end(), [](const auto& step) {
            return step.kind != Placement::run;
        });
        const size_t planned = run_.level(level + 1).line.tasks.size();
        if (size_t(transfers) != planned)
            broken("%zu transfers of level %zu are planned in the level below, but %zu exist",
                   planned, level, size_t(transfers));
    }

    void begin() {
        for (uint32_t tile = 0; tile < line_.tiles.size(); ++tile) {
            if (!is_placed(tile) || !line_.tiles[tile].before) continue;
            const auto [level, slot] = run_.place_of(tile, &Placement::first);
            if (slot != no_slot)
                put(levels_[level], tile, slot);
            else
                on_disk_[tile] = 0;
        }
    }
    void run_task(uint32_t task) {
        const auto first = line_.accesses.first[task], last = line_.accesses.first[task + 1];
        for (uint32_t i = first; i < last; ++i) {
            const auto& [tile, mode] = line_.accesses.list[i];
            if (!is_placed(tile) || mode == Mode::write) continue;
            need(levels_[0], tile, run_.placement.slots[i], "a task reads");
            --reads_left_[tile][size_t(values_[tile])];
        }
        for (uint32_t i = first; i < last; ++i) {
            const auto& [tile, mode] = line_.accesses.list[i];
            if (!is_placed(tile) || mode == Mode::read) continue;
            ++values_[tile];
            copies_[tile] = 0;
            put(levels_[0], tile, run_.placement.slots[i]);
        }
    }
    // slot_below: of a transfer above another level.
    void transfer(const Placement::Step& step, size_t level, uint32_t slot_below) {
        const uint32_t tile = step.index;
        const bool loads = step.kind == Placement::load, is_lowest = level + 1 == levels_.size();
        if (!loads) need(levels_[level], tile, step.slot, "is stored");
        if (is_lowest && loads && on_disk_[tile] != values_[tile])
            broken("tile %u is loaded, but the disk does not have its value", tile);
        if (!is_lowest && loads) need(levels_[level + 1], tile, slot_below, "is loaded");
        if (loads)
            put(levels_[level], tile, step.slot);
        else if (is_lowest)
            on_disk_[tile] = values_[tile];
        else
            put(levels_[level + 1], tile, slot_below);
    }
    void end() const {
        for (uint32_t tile = 0; tile < line_.tiles.size(); ++tile) {
            if (!is_placed(tile) || !line_.tiles[tile].after) continue;
            const auto [level, slot] = run_.place_of(tile, &Placement::last);
            if (slot != no_slot)
                need(levels_[level], tile, slot, "must be there at the end");
            else if (on_disk_[tile] != values_[tile])
                broken("the value of tile %u is not on the disk at the end", tile);
        }
    }

    const RunPlan& run_;
    const Line& line_;
    std::vector<Level> levels_;
    std::vector<int64_t> values_;  // of each tile now
    std::vector<int> copies_;      // slots of all levels that hold this value
    std::vector<int64_t> on_disk_;
    std::vector<std::vector<uint32_t>> reads_left_;  // of each value of each tile
};

}  // namespace

std::string check_levels(const RunPlan& run) {
    return problem_of([&] { Walk(run).walk(); });
}

}  // namespace nn
