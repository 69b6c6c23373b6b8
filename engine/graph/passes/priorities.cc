// Priorities by the critical path: the longest path from a task to the end of the program. Only
// their order matters. Tasks with an explicit priority come first, and all tasks of a microbatch
// come before those of the next one. In a microbatch, recomputation (recompute.h) begins when all
// other ready tasks are taken, because these free what was recomputed before.
//
// With several ranks, a task of the batch has the priority of its position in the program, and the
// rules above do not hold for it: by the critical path, the gradients of all weights would be
// computed at the end of the backward pass, and the links would be idle until then. The position of
// a recomputation is just before its use. Sums, updates and transfers come before all these tasks,
// because other ranks wait for them; among themselves, by the critical path of two steps.
#include <algorithm>
#include <limits>

#include "engine/graph/cost.h"
#include "engine/graph/passes/passes.h"

namespace nn {
namespace {

constexpr double most = 2e9;  // of an int32_t

bool has_transfers(const Program& program) {
    return std::ranges::any_of(program.tasks, &Task::is_transfer);
}

void set_priorities_of_rank(Program& program) {
    std::vector<Task>& tasks = program.tasks;
    float longest = std::numeric_limits<float>::min();
    for (const Task& task : tasks) longest = std::max(longest, task.urgency);
    for (size_t t = 0; t < tasks.size(); ++t) {
        const bool in_order = tasks[t].shard >= 0 && !tasks[t].is_transfer();
        const double priority = 1e9 * double(tasks[t].urgency / longest) + 1e8 * tasks[t].priority;
        tasks[t].priority = in_order ? -int32_t(t) : int32_t(std::clamp(priority, -most, most));
    }
}

size_t microbatches_in(const Program& program, size_t begin, size_t end) {
    return size_t(std::ranges::count_if(program.microbatches, [&](const auto& microbatch) {
        return microbatch.begin >= begin && microbatch.begin < end;
    }));
}

// How many microbatches of a run have begun at each task, in the first iteration of its loop; at
// the end: all.
std::vector<uint32_t> begun_before(const Program& program) {
    std::vector<uint32_t> out(program.tasks.size() + 1, 0);
    for (const auto& microbatch : program.microbatches) ++out[microbatch.begin];
    for (const Program::Loop& loop : program.loops)
        out[loop.end] +=
            uint32_t(microbatches_in(program, loop.begin, loop.end)) * (loop.iterations - 1);
    for (size_t t = 1; t < out.size(); ++t) out[t] += out[t - 1];
    return out;
}

}  // namespace

void set_priorities(Program& program) {
    if (has_transfers(program)) return set_priorities_of_rank(program);
    std::vector<Task>& tasks = program.tasks;
    const std::vector<uint32_t> begun = begun_before(program);
    const double all = begun.back();
    const std::vector<double> path =
        paths_to_end(predecessors(program.accesses()), nominal_seconds(tasks));
    const double longest = path.empty() ? 0 : 1e6 * *std::max_element(path.begin(), path.end());
    const double band = all > 0 ? longest : 0;
    const double scale = band > 0 ? std::min(1.0, most / (band * (all + 1))) : 1;
    for (Program::Loop& loop : program.loops)
        loop.priority_step =
            int32_t(double(microbatches_in(program, loop.begin, loop.end)) * band * scale);
    for (size_t t = 0; t < tasks.size(); ++t) {
        const double later = (all - begun[t]) * band;
        const double within = tasks[t].is_last_choice ? 0 : path[t] * 1e6;
        const double priority = (within + later) * scale + 1e8 * tasks[t].priority;
        tasks[t].priority = int32_t(std::clamp(priority, -most, most));
    }
}

}  // namespace nn
