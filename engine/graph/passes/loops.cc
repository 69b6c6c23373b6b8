#include "engine/graph/passes/loops.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/graph/context.h"
#include "engine/graph/passes/passes.h"
#include "engine/machine/description.h"
#include "engine/machine/ranks.h"

namespace nn {

std::unordered_set<const Tile*> private_tiles(const Program& program, const Program::Loop& loop) {
    std::unordered_set<const Tile*> seen, out;
    for (size_t t = loop.begin; t < loop.end; ++t) {
        const Task& task = program.tasks[t];
        for (int i = 0; i < task.handles; ++i) {
            const Tile* const tile = task.tiles[i].get();
            if (seen.insert(tile).second && !tile->persists() && task.modes[i] == Mode::write)
                out.insert(tile);
        }
    }
    return out;
}

namespace {

using Replaced = std::unordered_map<const Tile*, TilePtr>;

class Cutter {
public:
    Cutter(Program& program, size_t number, const LoopCut& cut, bool share_tiles)
        : program_(program),
          number_(number),
          loop_(program.loops[number]),
          cut_(cut),
          share_tiles_(share_tiles),
          private_(private_tiles(program, loop_)),
          tasks_(std::exchange(program.tasks, {})),
          microbatches_(std::exchange(program.microbatches, {})),
          backwards_(std::exchange(program.backwards, {})),
          seconds_(std::exchange(program.seconds, {})) {}

    void run() {
        const uint32_t looped = loop_.iterations - cut_.head - cut_.tail;
        copy_outside(0, loop_.begin);
        for (uint32_t k = 0; k < cut_.head; ++k)
            copy_iteration(k, share_tiles_ ? k : cut_.copies + k);
        const size_t begin = size();
        for (uint32_t c = 0; looped > 0 && c < cut_.copies; ++c) copy_body(c, looped);
        const size_t end = size();
        const uint32_t tail = loop_.iterations - cut_.tail;
        for (uint32_t k = tail; k < loop_.iterations; ++k)
            copy_iteration(k, share_tiles_ ? k - tail : cut_.copies + k);
        const auto shift = ptrdiff_t(size()) - ptrdiff_t(loop_.end);
        copy_outside(loop_.end, tasks_.size());
        move_marks(shift);
        auto& loops = program_.loops;
        if (looped == 0) loops.erase(loops.begin() + ptrdiff_t(number_));
        if (looped > 0)
            loops[number_] = {begin, end, looped / cut_.copies, loop_.randoms * cut_.copies};
        program_.tasks_changed();
    }

private:
    size_t size() const { return program_.tasks.size(); }

    // As tasks that run once. tiles: the number of a set of tiles for this copy of the body.
    void copy_iteration(uint32_t iteration, uint32_t tiles) {
        const bool is_last = iteration + 1 == loop_.iterations;
        copy_tasks(loop_.begin, loop_.end, [&](Task& task) {
            if (task.iteration >= 0 && task.iteration != int32_t(iteration)) return false;
            task.iteration = -1;
            if (!is_last) replace_tiles(task, fresh_[tiles]);
            shift_random_keys(task, &task.arg, loop_.randoms * iteration);
            return true;
        });
    }

    void copy_body(uint32_t copy, uint32_t looped) {
        const bool is_last = cut_.tail == 0 && copy + 1 == cut_.copies;
        copy_tasks(loop_.begin, loop_.end, [&](Task& task) {
            if (task.iteration >= 0) {
                const int64_t number = int64_t(task.iteration) - cut_.head;
                if (number < 0 || number >= looped || number % cut_.copies != copy) return false;
                task.iteration = int32_t(number / cut_.copies);
            }
            if (!is_last) replace_tiles(task, fresh_[copy]);
            shift_random_keys(task, &task.arg, loop_.randoms * (cut_.head + copy));
            return true;
        });
    }

    void copy_outside(size_t begin, size_t end) {
        copy_tasks(begin, end, [](Task&) { return true; });
    }

    // Copies tasks that `change` returns true for, and the marks among them.
    template <class Change> void copy_tasks(size_t begin, size_t end, Change change) {
        std::vector<size_t> place;
        for (size_t t = begin; t < end; ++t) {
            place.push_back(size());
            Task task = tasks_[t];
            if (!change(task)) continue;
            program_.tasks.push_back(std::move(task));
            if (!seconds_.empty()) program_.seconds.push_back(seconds_[t]);
        }
        place.push_back(size());
        for (const auto& mark : microbatches_)
            if (mark.begin >= begin && mark.begin < end)
                program_.microbatches.push_back({place[mark.begin - begin], mark.tiles});
        for (const auto& mark : backwards_)
            if (mark.begin >= begin && mark.begin < end)
                program_.backwards.push_back({place[mark.begin - begin], place[mark.end - begin]});
    }

    // The last iteration keeps its tiles, because tasks after the loop may read them.
    void replace_tiles(Task& task, Replaced& fresh) const {
        for (int i = 0; i < task.handles; ++i) {
            const Tile* const old = task.tiles[i].get();
            if (!private_.count(old)) continue;
            TilePtr& tile = fresh[old];
            if (!tile) tile = fresh_tile(*old, program_.number);
            task.tiles[i] = tile;
        }
    }

    void move_marks(ptrdiff_t shift) {
        const auto move = [&](size_t& mark) {
            if (mark >= loop_.end) mark = size_t(ptrdiff_t(mark) + shift);
        };
        for (auto& step : program_.scalar_steps) move(step.before_task);
        for (size_t i = number_ + 1; i < program_.loops.size(); ++i)
            move(program_.loops[i].begin), move(program_.loops[i].end);
    }

    Program& program_;
    const size_t number_;
    const Program::Loop loop_;
    const LoopCut cut_;
    const bool share_tiles_;
    const std::unordered_set<const Tile*> private_;
    std::vector<Task> tasks_;  // before
    const std::vector<Program::Microbatch> microbatches_;
    const std::vector<Program::Backward> backwards_;
    const std::vector<double> seconds_;
    std::unordered_map<uint32_t, Replaced> fresh_;  // sets of tiles
};

}  // namespace

TilePtr fresh_tile(const Tile& like, uint32_t recording) {
    const InRecording in(recording);
    TilePtr out = std::make_shared<Tile>(like.bytes);
    out->kind = like.kind;
    out->recorded = true;
    return out;
}

void cut_loop(Program& program, size_t loop, const LoopCut& cut, bool share_tiles) {
    Cutter(program, loop, cut, share_tiles).run();
}

void expand_loop(Program& program, size_t loop) {
    cut_loop(program, loop, {program.loops[loop].iterations, 1, 0});
}

std::unique_ptr<Program> cut_copy(const Program& program, const std::vector<double>& seconds,
                                  const LoopCut& cut) {
    auto out = trial_of(program);
    out->seconds = seconds;
    while (cut.copies == 0 && !out->loops.empty()) expand_loop(*out, 0);
    if (cut.copies > 0) cut_loop(*out, 0, cut, true);
    find_lifetimes(*out);
    return out;
}

// Placement on GPUs and the distribution over ranks treat every microbatch on its own.
void expand_loops(Program& program) {
    const int ranks = program.is_plan ? machine().ranks : nn::ranks().count;
    while ((gpus_in_use() > 0 || ranks > 1) && !program.loops.empty()) expand_loop(program, 0);
}

std::vector<uint32_t> runs_of_tasks(const Program& program) {
    std::vector<uint32_t> out(program.tasks.size(), 1);
    for (const Program::Loop& loop : program.loops)
        for (size_t t = loop.begin; t < loop.end; ++t)
            if (program.tasks[t].iteration < 0) out[t] = loop.iterations;
    return out;
}

}  // namespace nn
