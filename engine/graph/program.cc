#include "engine/graph/program.h"

#include <algorithm>
#include <utility>

#include "engine/graph/context.h"
#include "engine/graph/scalars.h"

namespace nn {

std::vector<TilePtr> tiles_of(const std::vector<Tensor>& tensors) {
    std::vector<TilePtr> out;
    for (const Tensor& tensor : tensors)
        for (int64_t i = 0; i < tensor.tiles(); ++i) out.push_back(tensor.tile(i));
    return out;
}

Program::~Program() {
    for (int32_t scalar : held_scalars_) release_scalar(scalar);
}

void Program::hold(int32_t scalar) {
    hold_scalar(scalar);
    held_scalars_.push_back(scalar);
}

void Program::keep_tasks(const std::vector<char>& kept) {
    std::vector<size_t> kept_before(tasks.size() + 1, 0);
    for (size_t t = 0; t < tasks.size(); ++t) {
        kept_before[t + 1] = kept_before[t] + size_t(kept[t]);
        if (kept[t] && kept_before[t] != t) tasks[kept_before[t]] = std::move(tasks[t]);
    }
    tasks.resize(kept_before.back());
    for (auto& step : scalar_steps) step.before_task = kept_before[step.before_task];
    for (auto& microbatch : microbatches) microbatch.begin = kept_before[microbatch.begin];
    for (auto& backward : backwards)
        backward = {kept_before[backward.begin], kept_before[backward.end]};
    for (auto& loop : loops) loop.begin = kept_before[loop.begin], loop.end = kept_before[loop.end];
    tasks_changed();
}

// A scalar changes before the first task that uses its new value.
static bool move_step(Program::ScalarStep& step, const std::vector<Task>& tasks,
                      const std::vector<size_t>& position) {
    size_t earliest = 0, latest = tasks.size();
    for (size_t t = 0; t < tasks.size(); ++t)
        for (const Patch& patch : tasks[t].patches) {
            if (patch.kind != Patch::scalar || !depends_on(patch.scalar_id, step.scalar)) continue;
            if (t < step.before_task)
                earliest = std::max(earliest, position[t] + 1);
            else
                latest = std::min(latest, position[t]);
        }
    step.before_task = latest;
    return earliest <= latest;
}

bool Program::reorder(const std::vector<uint32_t>& order) {
    std::vector<size_t> position(order.size());
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    auto steps = scalar_steps;
    for (ScalarStep& step : steps)
        if (!move_step(step, tasks, position)) return false;
    std::ranges::stable_sort(steps, {}, &ScalarStep::before_task);
    scalar_steps = std::move(steps);
    for (Microbatch& microbatch : microbatches) microbatch.begin = position[microbatch.begin];
    std::vector<Task> moved;
    for (const uint32_t t : order) moved.push_back(std::move(tasks[t]));
    tasks = std::move(moved);
    backwards.clear();  // their tasks may not follow each other any more
    tasks_changed();
    return true;
}

const Accesses& Program::accesses() {
    if (!accesses_) accesses_ = std::make_unique<Accesses>(accesses_of(tasks));
    return *accesses_;
}

std::unique_ptr<Program> trial_of(const Program& program) {
    auto out = std::make_unique<Program>(program.number);
    out->tasks = program.tasks;
    out->inputs = program.inputs, out->outputs = program.outputs;
    out->is_plan = program.is_plan, out->lasting = program.lasting;
    out->order_is_fixed = program.order_is_fixed;
    out->microbatches = program.microbatches, out->backwards = program.backwards;
    out->scalar_steps = program.scalar_steps, out->loops = program.loops;
    out->shards = program.shards, out->randoms = program.randoms;
    return out;
}

}  // namespace nn
