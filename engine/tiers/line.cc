#include "engine/tiers/line.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/memory/arena.h"

namespace nn {

ProgramLines::ProgramLines(const Program& program, const std::vector<const Tile*>& others,
                           size_t least_placed, const std::vector<double>& seconds, int workers)
    : program_(program),
      accesses_(accesses_without_gates(program)),
      seconds_(seconds),
      workers_(workers) {
    tiles_.resize(accesses_.tiles);
    for (const auto& [tile, number] : accesses_.numbers) tiles_[number] = tile;
    for (const Tile* tile : others)
        if (!accesses_.numbers.count(tile)) tiles_.push_back(tile);
    std::unordered_set<const Tile*> ends;
    for (const auto* tensors : {&program.inputs, &program.outputs})
        for (const TilePtr& tile : tiles_of(*tensors)) ends.insert(tile.get());
    const auto before = made_before(program);
    for (const Tile* tile : tiles_) {
        const bool persists = !tile->recording || before.count(tile);
        persists_.push_back(persists);
        const bool placed = tile->bytes >= least_placed && (persists || !ends.count(tile));
        blocks_.push_back(placed ? slot_blocks(int64_t(tile->bytes)) : 0);
        if (placed) continue;
        kept_ += int64_t(arena_bytes(tile->bytes));
        if (!persists) kept_temporaries_ += int64_t(arena_bytes(tile->bytes));
    }
    choose_order({});
}

uint32_t ProgramLines::least_blocks() const {
    uint32_t most = 0;
    for (uint32_t task = 0; task < accesses_.tasks(); ++task) {
        uint32_t blocks = 0;
        for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a)
            blocks += blocks_[a->tile];
        most = std::max(most, blocks);
    }
    return most;
}

void ProgramLines::choose_order(const OrderChoice& choice) {
    order_ = order_tasks(program_, accesses_, choice);
    carried_.assign(tiles_.size(), 0);
    for (uint32_t task : order_.deferred)
        for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a)
            carried_[a->tile] = !persists_[a->tile];
}

TaskLine ProgramLines::first_run() const { return line_of(order_.body, false, true); }
TaskLine ProgramLines::next_run() const {
    return line_of(merge_deferred(order_, accesses_), true, true);
}
TaskLine ProgramLines::deferred_run() const { return line_of(order_.deferred, true, false); }

TaskLine ProgramLines::line_of(std::vector<uint32_t> tasks, bool follows, bool defers) const {
    TaskLine out;
    Line& line = out.line;
    line.accesses.tiles = uint32_t(tiles_.size());
    for (size_t i = 0; i < tiles_.size(); ++i) {
        const bool persists = persists_[i], carried = carried_[i];
        line.tiles.push_back(
            {blocks_[i], persists || (carried && follows), persists || (carried && defers)});
    }
    std::vector<double> seconds;
    for (uint32_t task : tasks) {
        for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a)
            line.accesses.add(a->tile, a->mode);
        line.accesses.end_task();
        seconds.push_back(seconds_[task]);
    }
    line.set_times(seconds, workers_);
    out.tasks = std::move(tasks);
    return out;
}

}  // namespace nn
