#include "engine/tiers/line.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/memory/arena.h"

namespace nn {

// Tasks of one iteration fill small tiles outside of slots.
static std::unordered_set<const Tile*> tiles_of_single_iterations(const Program& program) {
    std::unordered_set<const Tile*> out;
    for (const Task& task : program.tasks)
        for (int i = 0; task.iteration >= 0 && i < task.handles; ++i)
            out.insert(task.tiles[i].get());
    return out;
}

ProgramLines::ProgramLines(const Program& program, const std::vector<const Tile*>& others,
                           size_t least_placed, const std::vector<double>& seconds, int workers)
    : program_(program),
      accesses_(accesses_without_gates(program)),
      seconds_(seconds),
      workers_(workers) {
    tiles_.resize(accesses_.tiles);
    for (const auto& [tile, number] : accesses_.numbers) tiles_[number] = tile;
    for (const Tile* tile : others)
        if (tile->bytes >= least_placed && !accesses_.numbers.count(tile)) tiles_.push_back(tile);
    const auto rows = tiles_of_single_iterations(program);
    std::unordered_set<const Tile*> ends = rows;
    for (const auto* tensors : {&program.inputs, &program.outputs})
        for (const TilePtr& tile : tiles_of(*tensors)) ends.insert(tile.get());
    for (const Tile* tile : tiles_) {
        const bool persists = tile->persists();
        persists_.push_back(persists);
        is_in_rows_.push_back(rows.count(tile) > 0);
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
    find_live();
}

// A temporary has a value if tasks made one before and the next tasks that access it read it.
void ProgramLines::find_live() {
    enum First : char { untouched, reads, writes };
    const auto first_access = [&](const std::vector<uint32_t>& tasks) {
        std::vector<First> out(tiles_.size(), untouched);
        for (uint32_t task : tasks)
            for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a)
                if (out[a->tile] == untouched)
                    out[a->tile] = a->mode == Mode::write ? writes : reads;
        return out;
    };
    const auto body = first_access(order_.body), iteration = first_access(order_.iteration),
               tail = first_access(order_.tail), deferred = first_access(order_.deferred);
    none_.assign(tiles_.size(), 0);
    before_loop_ = after_loop_ = after_iteration_ = none_;
    for (size_t i = 0; i < tiles_.size(); ++i) {
        if (persists_[i]) continue;
        const bool is_read_later = (tail[i] == untouched ? deferred[i] : tail[i]) == reads;
        const bool is_made = body[i] != untouched;
        before_loop_[i] =
            is_in_rows_[i] ||
            (is_made && (iteration[i] == untouched ? is_read_later : iteration[i] == reads));
        after_loop_[i] = is_read_later && (is_made || iteration[i] != untouched);
        after_iteration_[i] = before_loop_[i] || after_loop_[i];
    }
}

std::vector<uint32_t> ProgramLines::next_tasks() const {
    return has_deferred() ? merge_deferred(order_, accesses_) : order_.body;
}

TaskLine ProgramLines::first_run() const {
    return line_of(order_.body, none_, has_loop() ? before_loop_ : carried_);
}
TaskLine ProgramLines::next_run() const {
    return line_of(next_tasks(), carried_, has_loop() ? before_loop_ : carried_);
}
TaskLine ProgramLines::deferred_run() const { return line_of(order_.deferred, carried_, none_); }
TaskLine ProgramLines::iteration_run() const {
    return line_of(order_.iteration, before_loop_, after_iteration_);
}
TaskLine ProgramLines::tail_run() const { return line_of(order_.tail, after_loop_, carried_); }
TaskLine ProgramLines::seam() const {
    std::vector<uint32_t> tasks = order_.tail;
    tasks.push_back(no_task);
    for (uint32_t task : next_tasks()) tasks.push_back(task);
    TaskLine out = line_of(std::move(tasks), after_loop_, before_loop_);
    out.line.cut = uint32_t(order_.tail.size());
    return out;
}

TaskLine ProgramLines::line_of(std::vector<uint32_t> tasks, const Flags& before,
                               const Flags& after) const {
    TaskLine out;
    Line& line = out.line;
    out.tasks = std::move(tasks);
    line.accesses.tiles = uint32_t(tiles_.size());
    for (size_t i = 0; i < tiles_.size(); ++i)
        line.tiles.push_back({blocks_[i], persists_[i] || before[i], persists_[i] || after[i]});
    std::vector<double> seconds;
    for (uint32_t i = 0; i < out.tasks.size(); ++i) {
        const uint32_t task = out.tasks[i];
        if (task != no_task)
            for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a)
                line.accesses.add(a->tile, a->mode);
        line.accesses.end_task();
        seconds.push_back(seconds_at(out, i, seconds_));
    }
    line.set_times(seconds, workers_);
    return out;
}

}  // namespace nn
