// An independent check of a placement: it replays the steps on symbols and knows nothing of the
// rules by which they were chosen. Only value numbers are compared: each write gives its tile a new
// one.
#include <iterator>
#include <map>

#include "engine/base/interrupts.h"
#include "engine/tiers/check.h"
#include "engine/tiers/placement.h"

namespace nn {
namespace {

const char* place(uint32_t slot) { return slot == no_slot ? "in the store" : "in a slot"; }

class Walk {
public:
    Walk(const Line& line, const Placement& placement)
        : line_(line),
          placement_(placement),
          values_(line.tiles.size(), 0),
          in_store_(line.tiles.size(), -1),
          reads_left_(reads_of_values(line)) {}

    void run() {
        begin();
        std::vector<char> done(line_.accesses.tasks(), 0);
        before_ = predecessors(line_.accesses);
        for (const Placement::Step& step : placement_.steps) {
            check_interrupt();
            if (step.kind == Placement::run)
                run_task(step.index, done);
            else
                transfer(step);
        }
        for (uint32_t task = 0; task < done.size(); ++task)
            if (!done[task]) broken("task %u does not run", task);
        end();
    }

private:
    struct Content {
        uint32_t end;  // block
        uint32_t tile;
        int64_t value;
    };

    // Nothing reserves a slot at an end for a tile that is not placed or has no value there.
    // Whoever relied on it would lose the value.
    void need_reserved(uint32_t tile, uint32_t slot, bool has_value) const {
        if (slot != no_slot && !line_.is_placed(tile))
            broken("tile %u has a slot at an end, but is not placed", tile);
        if (slot != no_slot && !has_value)
            broken("tile %u has a slot at an end, but no value there", tile);
    }

    // At the start, a tile in a slot has no valid copy in the store.
    void begin() {
        for (uint32_t tile = 0; tile < line_.tiles.size(); ++tile) {
            const bool has_value = line_.tiles[tile].before;
            need_reserved(tile, placement_.first[tile], has_value);
            if (!line_.is_placed(tile) || !has_value) continue;
            if (placement_.first[tile] == no_slot)
                in_store_[tile] = 0;
            else
                put(tile, placement_.first[tile]);
        }
    }

    uint32_t end_of(uint32_t tile, uint32_t slot) const {
        if (tile >= line_.tiles.size()) broken("there are no %u tiles", tile);
        if (!line_.is_placed(tile)) broken("tile %u has a slot, but is not placed", tile);
        const uint64_t end = uint64_t(slot) + line_.tiles[tile].blocks;
        if (slot == no_slot || end > placement_.blocks)
            broken("tile %u ends at block %llu of %u", tile, (unsigned long long)end,
                   placement_.blocks);
        return uint32_t(end);
    }

    bool holds(uint32_t tile, uint32_t slot) const {
        const auto at = contents_.find(slot);
        return at != contents_.end() && at->second.tile == tile &&
               at->second.value == values_[tile];
    }

    // Puts the tile's value into the slot. The values of other tiles there must be in the store or
    // be unnecessary.
    void put(uint32_t tile, uint32_t slot) {
        const uint32_t end = end_of(tile, slot);
        auto at = contents_.upper_bound(slot);
        if (at != contents_.begin() && std::prev(at)->second.end > slot) --at;
        while (at != contents_.end() && at->first < end) {
            drop(at->second);
            at = contents_.erase(at);
        }
        contents_[slot] = {end, tile, values_[tile]};
    }
    void drop(const Content& content) const {
        const uint32_t tile = content.tile;
        if (content.value != values_[tile] || in_store_[tile] == content.value) return;
        const auto& reads = reads_left_[tile];
        const bool is_last = size_t(content.value) + 1 == reads.size();
        if (reads[size_t(content.value)] > 0 || (is_last && line_.tiles[tile].after))
            broken("a slot loses the only value of tile %u", tile);
    }

    void transfer(const Placement::Step& step) {
        const uint32_t tile = step.index;
        end_of(tile, step.slot);
        if (step.kind == Placement::store) {
            if (!holds(tile, step.slot))
                broken("slot %u does not hold tile %u, which is stored", step.slot, tile);
            in_store_[tile] = values_[tile];
            return;
        }
        if (in_store_[tile] != values_[tile])
            broken("tile %u is loaded, but the store does not have its value", tile);
        put(tile, step.slot);
    }

    void run_task(uint32_t task, std::vector<char>& done) {
        if (task >= done.size() || done[task]) broken("task %u runs twice or does not exist", task);
        for (const Edge* e = before_.begin(task); e != before_.end(task); ++e)
            if (!done[e->task]) broken("task %u runs before task %u", task, e->task);
        done[task] = 1;
        const auto first = line_.accesses.first[task], last = line_.accesses.first[task + 1];
        for (uint32_t i = first; i < last; ++i) use(task, i);
        for (uint32_t i = first; i < last; ++i) finish(i);
    }

    void use(uint32_t task, uint32_t access) const {
        const auto& [tile, mode] = line_.accesses.list[access];
        const uint32_t slot = placement_.slots[access];
        if (!line_.is_placed(tile)) {
            if (slot != no_slot) broken("tile %u is not placed, but has a slot", tile);
            return;
        }
        const uint32_t end = end_of(tile, slot);
        for (uint32_t i = line_.accesses.first[task]; i < access; ++i) {
            const uint32_t other = placement_.slots[i];
            if (other != no_slot && other < end &&
                slot < end_of(line_.accesses.list[i].tile, other))
                broken("task %u has two tiles in slot %u", task, slot);
        }
        if (mode != Mode::write && !holds(tile, slot))
            broken("task %u reads tile %u from slot %u, which does not hold it", task, tile, slot);
    }

    void finish(uint32_t access) {
        const auto& [tile, mode] = line_.accesses.list[access];
        if (!line_.is_placed(tile)) return;
        if (mode != Mode::write) --reads_left_[tile][size_t(values_[tile])];
        if (mode == Mode::read) return;
        ++values_[tile];
        put(tile, placement_.slots[access]);
    }

    void end() const {
        for (uint32_t tile = 0; tile < line_.tiles.size(); ++tile) {
            const uint32_t last = placement_.last[tile];
            need_reserved(tile, last, line_.tiles[tile].after);
            if (!line_.is_placed(tile) || !line_.tiles[tile].after) continue;
            if (last == no_slot ? in_store_[tile] != values_[tile] : !holds(tile, last))
                broken("the value of tile %u is not %s at the end", tile, place(last));
        }
    }

    const Line& line_;
    const Placement& placement_;
    Edges before_;
    std::map<uint32_t, Content> contents_;           // by first block
    std::vector<int64_t> values_;                    // of each tile now
    std::vector<int64_t> in_store_;                  // the value that the store has; -1: none
    std::vector<std::vector<uint32_t>> reads_left_;  // of each value of each tile
};

}  // namespace

std::string check_placement(const Line& line, const Placement& placement) {
    return problem_of([&] { Walk(line, placement).run(); });
}

std::string check_succession(const Line& first_line, const Placement& first,
                             const Line& second_line, const Placement& second) {
    for (uint32_t tile = 0; tile < first_line.tiles.size(); ++tile) {
        if (!first_line.is_placed(tile) || !second_line.tiles[tile].before) continue;
        if (!first_line.tiles[tile].after)
            return format("the next run needs tile %u, which the run drops", tile);
        const uint32_t last = first.last[tile], next = second.first[tile];
        if (last == next) continue;
        if (last == no_slot || next == no_slot)
            return format("tile %u ends %s, but begins %s", tile, place(last), place(next));
        return format("tile %u ends in slot %u, but begins in slot %u", tile, last, next);
    }
    return "";
}

}  // namespace nn
