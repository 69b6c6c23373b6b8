// Limits the number of microbatches in memory at once. By the critical path alone, workers would
// run the forward pass of every microbatch before the first backward pass. So a microbatch starts
// when an earlier one has ended: the last task of the earlier one writes a tile, the gate, which
// the first tasks of this one read.
#include <algorithm>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/graph/cost.h"
#include "engine/graph/passes/loops.h"
#include "engine/graph/passes/passes.h"
#include "engine/machine/description.h"

namespace nn {
namespace {

// The tasks of a microbatch that depend on none of its other tasks except transfers, and the last
// task on its longest path. Tasks that cut the rows of a loop come after the microbatch before it,
// and are not part of it.
struct Ends {
    std::vector<size_t> first;
    size_t last = 0;
};

Ends ends_of(const std::vector<Task>& tasks, const Edges& before,
             const std::vector<double>& seconds, size_t begin, size_t end) {
    Ends out;
    std::vector<double> path(end - begin);
    std::vector<char> waits(end - begin, 0);  // for a task, maybe through transfers
    double longest = -1;
    for (size_t t = begin; t < end; ++t) {
        if (tasks[t].iteration >= 0) continue;
        double& length = path[t - begin];
        for (const Edge* e = before.begin(uint32_t(t)); e != before.end(uint32_t(t)); ++e) {
            if (e->task < begin) continue;
            const bool is_task = !tasks[e->task].is_transfer();
            if (is_task || waits[e->task - begin]) waits[t - begin] = 1;
            length = std::max(length, path[e->task - begin]);
        }
        length += seconds[t];
        if (tasks[t].is_transfer()) continue;  // StarPU has no task for it
        if (!waits[t - begin]) out.first.push_back(t);
        if (length > longest) longest = length, out.last = t;
    }
    return out;
}

void add_gate(Task& task, const TilePtr& gate, Mode mode) {
    for (int i = task.handles - task.gates; i < task.handles; ++i)
        if (task.tiles[i] == gate) {
            task.modes[i] = Mode::read_write;
            return;
        }
    if (!task.add_tile(gate, mode)) fail("compile: a task of %s has two gates", task.arg.op);
    ++task.gates;
}

// The rows of an iteration are cut out of the batch when those of the iteration before are not in
// use any more. Their tiles, which the body reads, are the gates: they get new values anyway.
void delay_rows(Program& program) {
    for (const Program::Loop& loop : program.loops) {
        std::unordered_set<const Tile*> of_body;
        for (size_t t = loop.begin; t < loop.end; ++t)
            for (int i = 0; program.tasks[t].iteration < 0 && i < program.tasks[t].handles; ++i)
                of_body.insert(program.tasks[t].tiles[i].get());
        TilePtr rows;  // that are written next
        for (size_t t = loop.end; t-- > loop.begin;) {
            Task& task = program.tasks[t];
            bool writes_rows = false;
            for (int i = 0; task.iteration > 0 && i < task.handles; ++i)
                if (task.writes(i) && of_body.count(task.tiles[i].get()))
                    rows = task.tiles[i], writes_rows = true;
            if (task.iteration > 0 && rows && !writes_rows) add_gate(task, rows, Mode::write);
        }
    }
}

}  // namespace

void order_microbatches(Program& program) {
    const auto& microbatches = program.microbatches;
    if (microbatches.empty()) return;
    int tiles = 1;  // more for microbatches whose rows are cut
    for (const auto& microbatch : microbatches) tiles = std::max(tiles, microbatch.tiles);
    // The smallest number that keeps every worker busy.
    const auto at_once = uint32_t((workers_in_use() - 1) / tiles) + 1;
    for (size_t i = program.loops.size(); at_once > 1 && i-- > 0;)
        cut_loop(program, i, {0, at_once, program.loops[i].iterations % at_once});
    delay_rows(program);
    const Edges before = predecessors(program.accesses());
    const std::vector<double> seconds = nominal_seconds(program.tasks);
    std::vector<TilePtr> gates(at_once);  // a microbatch uses that of an earlier one
    for (size_t m = 0; m < microbatches.size(); ++m) {
        const bool is_last = m + 1 == microbatches.size();
        const size_t end = is_last ? program.tasks.size() : microbatches[m + 1].begin;
        const Ends ends = ends_of(program.tasks, before, seconds, microbatches[m].begin, end);
        TilePtr& gate = gates[m % at_once];
        if (gate)
            for (size_t t : ends.first) add_gate(program.tasks[t], gate, Mode::read);
        if (is_last || ends.first.empty()) continue;
        if (!gate) gate = std::make_shared<Tile>(64);
        add_gate(program.tasks[ends.last], gate, Mode::write);
    }
    program.tasks_changed();
}

}  // namespace nn
