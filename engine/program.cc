#include "engine/program.h"

#include <starpu.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "engine/error.h"
#include "engine/rules.h"
#include "engine/runtime.h"

namespace nn {
namespace {

std::shared_ptr<Program> recording;
uint32_t recordings = 0;  // numbers are never used twice, so a temporary never passes for another program's
const char* op_in_progress = "task";

}  // namespace

void begin_recording() {
    if (recording) fail("compile: another recording is under way");
    recording = std::make_shared<Program>();
    ++recordings;
}

std::shared_ptr<Program> end_recording() {
    if (!recording) fail("compile: no recording is under way");
    return std::move(recording);
}

void abort_recording() { recording.reset(); }
uint32_t recording_number() { return recording ? recordings : 0; }
Program* recording_program() { return recording.get(); }

const char* current_op() { return op_in_progress; }
const char* set_current_op(const char* op) {
    const char* before = op_in_progress;
    op_in_progress = op;
    return before;
}

void Program::finish(std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
    inputs_ = std::move(inputs);
    outputs_ = std::move(outputs);
    drop_unused();
    find_lifetimes();
    find_priorities();
}

// A task is needed if it writes something that persists, an output, or a temporary that a needed task reads later.
void Program::drop_unused() {
    std::unordered_set<const Tile*> wanted;
    for (const Tensor& output : outputs_)
        for (int64_t i = 0; i < output.tiles(); ++i) wanted.insert(output.tile(i).get());
    std::vector<char> needed(tasks_.size(), 0);
    for (size_t t = tasks_.size(); t-- > 0;) {
        const Task& task = tasks_[t];
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::read && (!task.tiles[i]->recording || wanted.count(task.tiles[i].get())))
                needed[t] = 1;
        if (!needed[t]) continue;
        for (int i = 0; i < task.handles; ++i) wanted.insert(task.tiles[i].get());
    }
    std::vector<Task> kept;
    std::vector<size_t> new_index(tasks_.size() + 1);
    for (size_t t = 0; t < tasks_.size(); ++t) {
        new_index[t] = kept.size();
        if (needed[t]) kept.push_back(std::move(tasks_[t]));
    }
    new_index[tasks_.size()] = kept.size();
    for (SlotStep& step : slot_steps_) step.before_task = new_index[step.before_task];
    tasks_ = std::move(kept);
}

void Program::find_lifetimes() {
    std::unordered_map<const Tile*, size_t> last_use;
    std::unordered_set<const Tile*> outputs, persistent;
    for (const Tensor& output : outputs_)
        for (int64_t i = 0; i < output.tiles(); ++i) outputs.insert(output.tile(i).get());
    for (size_t t = 0; t < tasks_.size(); ++t)
        for (int i = 0; i < tasks_[t].handles; ++i) {
            Tile* tile = tasks_[t].tiles[i].get();
            if (tile->recording)
                last_use[tile] = t;
            else if (persistent.insert(tile).second)
                info_.persistent_bytes += int64_t(tile->bytes);
        }
    dies_after_.assign(tasks_.size(), {});
    int64_t live = 0;
    std::unordered_set<const Tile*> born;
    for (size_t t = 0; t < tasks_.size(); ++t) {
        for (int i = 0; i < tasks_[t].handles; ++i) {
            const Tile* tile = tasks_[t].tiles[i].get();
            if (tile->recording && born.insert(tile).second) live += int64_t(tile->bytes);
        }
        info_.peak_bytes = std::max(info_.peak_bytes, live);
        for (int i = 0; i < tasks_[t].handles; ++i) {
            const TilePtr& tile = tasks_[t].tiles[i];
            if (!tile->recording || last_use[tile.get()] != t || outputs.count(tile.get())) continue;
            dies_after_[t].push_back(tile);
            live -= int64_t(tile->bytes);
        }
        info_.flops += double(tasks_[t].arg.flops);
    }
    info_.tasks = int64_t(tasks_.size());
    info_.tiles = int64_t(born.size() + persistent.size());
}

// Priority: the longest path from a task to the end of the program, by an estimate of time (FLOPs at 100 GFLOP/s, bytes
// at 10 GB/s, 5 us a task), in microseconds. Only the order matters. Tasks that were given one keep it on top.
void Program::find_priorities() {
    std::vector<std::vector<uint32_t>> before(tasks_.size());
    struct Access {
        int64_t writer = -1;
        std::vector<uint32_t> readers;
    };
    std::unordered_map<const Tile*, Access> accesses;
    for (uint32_t t = 0; t < tasks_.size(); ++t)
        for (int i = 0; i < tasks_[t].handles; ++i) {
            Access& access = accesses[tasks_[t].tiles[i].get()];
            if (access.writer >= 0) before[t].push_back(uint32_t(access.writer));
            if (tasks_[t].modes[i] == Mode::read) {
                access.readers.push_back(t);
                continue;
            }
            before[t].insert(before[t].end(), access.readers.begin(), access.readers.end());
            access.readers.clear();
            access.writer = t;
        }
    std::vector<double> path(tasks_.size(), 0);
    for (size_t t = tasks_.size(); t-- > 0;) {
        const TaskArg& arg = tasks_[t].arg;
        path[t] += 5 + std::max(double(arg.flops) * 1e-5, double(arg.bytes) * 1e-4);
        for (uint32_t earlier : before[t]) path[earlier] = std::max(path[earlier], path[t]);
        tasks_[t].priority = int32_t(std::min(path[t] + 1e8 * tasks_[t].priority, 2e9));
    }
}

void Program::submit_tasks() {
    const double start = starpu_timing_now();
    size_t step = 0;
    for (size_t t = 0; t <= tasks_.size(); ++t) {
        for (; step < slot_steps_.size() && slot_steps_[step].before_task == t; ++step)
            set_slot(slot_steps_[step].slot, slot_value(slot_steps_[step].slot) + slot_steps_[step].delta);
        if (t == tasks_.size()) break;
        Task& task = tasks_[t];
        TaskArg* arg = &task.arg;
        if (!task.patches.empty()) {
            arg = static_cast<TaskArg*>(std::malloc(sizeof(TaskArg)));
            *arg = task.arg;
            apply_patches(task, arg);
        }
        submit(task, arg, arg != &task.arg);
        for (const TilePtr& tile : dies_after_[t]) invalidate(*tile);
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::read && !task.tiles[i]->recording) ++task.tiles[i]->version;
    }
    RuntimeStats& stats = mutable_stats();
    stats.tasks += int64_t(tasks_.size());
    stats.replayed_tasks += int64_t(tasks_.size());
    stats.replay_seconds += (starpu_timing_now() - start) * 1e-6;
}

// Tasks in flight point at arguments that live here.
Program::~Program() {
    if (running()) {
        ensure_awake();
        starpu_task_wait_for_all();
    }
}

std::vector<Tensor> Program::run(const std::vector<Tensor>& inputs) {
    if (inputs.size() != inputs_.size())
        fail("compiled function: %zu tensors given, %zu expected", inputs.size(), inputs_.size());
    start();
    ensure_awake();
    wait_below(std::max<int64_t>(64, int64_t(tasks_.size())));
    const TemporariesVisible visible;
    for (size_t i = 0; i < inputs.size(); ++i) copy_into(inputs_[i], inputs[i]);
    submit_tasks();
    set_random_counter(random_counter() + randoms_);
    std::vector<Tensor> results;
    for (const Tensor& output : outputs_) {
        bool temporary = false;
        for (int64_t i = 0; i < output.tiles(); ++i) temporary |= output.tile(i)->recording != 0;
        if (!temporary) {
            results.push_back(output);
            continue;
        }
        Tensor copy(output.grid(), output.dtype());
        copy_into(copy, output);
        results.push_back(copy);
    }
    return results;
}

}  // namespace nn
