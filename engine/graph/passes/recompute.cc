#include "engine/graph/passes/recompute.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "engine/graph/passes/loops.h"
#include "engine/graph/passes/passes.h"

namespace nn {
namespace {

class Rewriter {
public:
    Rewriter(const Activations& activations, Program& program, const std::vector<char>& chosen)
        : activations_(activations),
          program_(program),
          tasks_(std::exchange(program.tasks, {})),
          chosen_(chosen),
          fresh_(chosen.size()),
          has_run_(tasks_.size(), 0) {}

    void run() {
        for (uint32_t t = 0; t < tasks_.size(); ++t) {
            begin_.push_back(program_.tasks.size());
            const std::vector<uint32_t> tiles = read_by(t);
            if (!tiles.empty()) repeat_before(t, tiles);
            place_.push_back(program_.tasks.size());
            program_.tasks.push_back(std::move(tasks_[t]));
            for (uint32_t tile : tiles) redirect(program_.tasks.back(), t, tile);
        }
        begin_.push_back(program_.tasks.size());
        place_.push_back(program_.tasks.size());
        move_marks();
        program_.tasks_changed();
    }

private:
    using Access = Accesses::Access;
    const Access& access(uint32_t task, int handle) const {
        return activations_.accesses().begin(task)[handle];
    }

    // The chosen tiles that a task reads in the backward pass or after it.
    std::vector<uint32_t> read_by(uint32_t t) const {
        std::vector<uint32_t> out;
        for (int i = 0; i < tasks_[t].handles; ++i) {
            const uint32_t tile = access(t, i).tile;
            if (!chosen_[tile]) continue;
            if (t >= activations_.backward_of(activations_.tiles()[tile].segment))
                out.push_back(tile);
        }
        return out;
    }

    void redirect(Task& task, uint32_t t, uint32_t tile) const {
        for (int i = 0; i < task.handles; ++i)
            if (access(t, i).tile == tile) task.tiles[i] = fresh_[tile];
    }

    // Runs the tasks again that the tiles need.
    void repeat_before(uint32_t t, const std::vector<uint32_t>& tiles) {
        Activations::Needed needed;
        for (uint32_t tile : tiles)
            if (!is_complete(tile)) activations_.add_needed(tile, chosen_, has_run_, needed);
        if (needed.tasks.empty()) return;
        std::sort(needed.tasks.begin(), needed.tasks.end());
        const TilePtr gate = gate_for(t, needed.tasks.back());
        const size_t first = program_.tasks.size();
        for (uint32_t task : needed.tasks) repeat(task, gate, first);
    }

    bool is_complete(uint32_t tile) const {
        return has_run_[activations_.tiles()[tile].writers.back()] != 0;
    }

    // first: the place of the first task that was repeated with this one.
    void repeat(uint32_t task, const TilePtr& gate, size_t first) {
        Task again = program_.tasks[place_[task]];
        bool waits = !gate;
        for (int i = 0; i < again.handles; ++i) {
            const Access& use = access(task, i);
            const bool writes = use.mode != Mode::read;
            if (writes && !fresh_[use.tile])
                fresh_[use.tile] = fresh_tile(*again.tiles[i], program_.number);
            if (writes || activations_.is_new(task, use.tile, chosen_))
                again.tiles[i] = fresh_[use.tile];
            const auto made = made_at_.find(again.tiles[i].get());
            if (use.mode != Mode::write && made != made_at_.end() && made->second >= first)
                waits = true;
            if (again.tiles[i] == gate) waits = true;
        }
        for (int i = 0; i < again.handles; ++i)
            if (access(task, i).mode != Mode::read)
                made_at_[again.tiles[i].get()] = program_.tasks.size();
        // Otherwise an idle worker would run it during the forward pass.
        if (!waits && again.add_tile(gate, Mode::read)) ++again.gates;
        again.is_last_choice = !waits;
        again.repeats = true;
        program_.tasks.push_back(std::move(again));
    }

    // A tile that is written shortly before task t can run, but after the task `after`: the
    // newest that t reads, such as the gradient from the next layer; else of the task before t.
    TilePtr gate_for(uint32_t t, uint32_t after) const {
        TilePtr out;
        uint32_t newest = after;
        for (int i = 0; i < tasks_[t].handles; ++i) {
            const Access& use = access(t, i);
            const auto& writers = activations_.tiles()[use.tile].writers;
            const auto next = std::lower_bound(writers.begin(), writers.end(), t);
            if (use.mode == Mode::write || chosen_[use.tile] || next == writers.begin()) continue;
            if (*(next - 1) <= newest) continue;
            newest = *(next - 1);
            out = tasks_[t].tiles[i];
        }
        if (out || t <= after + 1) return out;
        const Task& before = program_.tasks[place_[t - 1]];
        for (int i = 0; i < before.handles - before.gates && !out; ++i)
            if (before.writes(i)) out = before.tiles[i];
        return out;
    }

    void move_marks() {
        for (auto& step : program_.scalar_steps) step.before_task = place_[step.before_task];
        for (auto& microbatch : program_.microbatches) microbatch.begin = begin_[microbatch.begin];
        for (auto& backward : program_.backwards)
            backward = {begin_[backward.begin], begin_[backward.end]};
        for (auto& loop : program_.loops)
            loop.begin = begin_[loop.begin], loop.end = begin_[loop.end];
    }

    const Activations& activations_;
    Program& program_;
    std::vector<Task> tasks_;  // before; those already placed are empty
    const std::vector<char>& chosen_;
    std::vector<TilePtr> fresh_;                       // of each tile: the new one, or null
    std::vector<char> has_run_;                        // of each task: again
    std::unordered_map<const Tile*, size_t> made_at_;  // fresh tiles: the last task that wrote it
    std::vector<size_t> begin_, place_;  // of each task: with what runs before it, and itself
};

}  // namespace

// The mean number of runs of recomputed tasks; those in loops run once per iteration.
static double runs_of_repeated(const Program& program) {
    const std::vector<uint32_t> runs = runs_of_tasks(program);
    double all = 0, recorded = 0;
    for (size_t t = 0; t < program.tasks.size(); ++t)
        if (program.tasks[t].repeats) all += runs[t], ++recorded;
    return all / std::max(recorded, 1.0);
}

void Recomputation::apply(Program& program, size_t count) const {
    if (count == 0) return;
    Rewriter(activations_, program, chosen(count)).run();
    int64_t recorded = 0;
    for (size_t i = 0; i < count; ++i) recorded += options_[i].bytes;
    program.recomputed_bytes = std::llround(double(recorded) * runs_of_repeated(program));
    check_values(program);
}

}  // namespace nn
