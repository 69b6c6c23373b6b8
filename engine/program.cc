#include "engine/program.h"

#include <starpu.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "engine/error.h"
#include "engine/memory.h"
#include "engine/plan.h"
#include "engine/profile.h"
#include "engine/rules.h"
#include "engine/runtime.h"

namespace nn {
namespace {

std::shared_ptr<Program> recording;
uint32_t recordings =
    0;  // numbers are never used twice, so a temporary never passes for another program's
const char* op_in_progress = "task";
bool in_place_in_progress = false;

bool is_temporary(const Tensor& tensor) {
    for (int64_t i = 0; i < tensor.tiles(); ++i)
        if (tensor.tile(i)->recording) return true;
    return false;
}

}  // namespace

void begin_recording() {
    if (recording) fail("compile: another recording is under way");
    recording = std::make_shared<Program>(++recordings);
}

std::shared_ptr<Program> end_recording() {
    if (!recording) fail("compile: no recording is under way");
    return std::move(recording);
}

void abort_recording() { recording.reset(); }
uint32_t recording_number() { return recording ? recordings : 0; }
Program* recording_program() { return recording.get(); }

const char* current_op() { return op_in_progress; }
bool current_op_in_place() { return in_place_in_progress; }
void set_current_op(const char* op, bool in_place) {
    op_in_progress = op;
    in_place_in_progress = in_place;
}

// Slots live as long as a program that reads them.
void Program::hold_slot(int32_t slot) {
    nn::hold_slot(slot);
    held_slots_.push_back(slot);
}

void Program::add(Task&& task) {
    for (const Patch& patch : task.patches)
        if (patch.kind == Patch::slot) hold_slot(patch.slot_id);
    tasks_.push_back(std::move(task));
}

void Program::add_to_slot(int32_t slot, double delta) {
    hold_slot(slot);
    slot_steps_.push_back({tasks_.size(), slot, delta});
}

void Program::check_ends() const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
        if (!inputs_[i]) fail("compile: input %zu is missing", i + 1);
        for (int64_t k = 0; k < inputs_[i].tiles(); ++k)
            if (inputs_[i].tile(k)->recording != number_)
                fail("compile: input %zu was not made for this recording", i + 1);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
        if (!outputs_[i]) fail("compile: result %zu is missing", i + 1);
        if (outputs_[i].stale())
            fail("compile: result %zu is a view of a tensor that was changed in place since",
                 i + 1);
        for (int64_t k = 0; k < outputs_[i].tiles(); ++k) {
            const Tile& tile = *outputs_[i].tile(k);
            if (!tile.recording) continue;
            if (tile.recording != number_)
                fail("compile: result %zu belongs to another compiled function", i + 1);
        }
    }
}

void Program::finish(std::vector<Tensor> inputs, std::vector<Tensor> outputs) {
    inputs_ = std::move(inputs);
    outputs_ = std::move(outputs);
    check_ends();
    check_inputs_kept();
    drop_unused();
    check_values();
    order_parts();
    find_lifetimes();
    find_priorities();
    find_help();
}

// What is recorded works on copies of the inputs, so a change in place would be lost.
void Program::check_inputs_kept() const {
    std::unordered_set<const Tile*> given;
    for (const Tensor& input : inputs_)
        for (int64_t i = 0; i < input.tiles(); ++i) given.insert(input.tile(i).get());
    for (const Task& task : tasks_)
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::read && given.count(task.tiles[i].get()))
                fail(
                    "compile: %s changes an argument of the compiled function in place; change a "
                    "clone() of it and return that, or use a tensor from outside",
                    task.arg.op);
}

// The inputs are filled at the start of a run; any other temporary must be written before it is
// read.
void Program::check_values() const {
    std::unordered_set<const Tile*> filled;
    const auto has_value = [&](const TilePtr& tile) {
        return !tile->recording || filled.count(tile.get());
    };
    for (const Tensor& input : inputs_)
        for (int64_t i = 0; i < input.tiles(); ++i) filled.insert(input.tile(i).get());
    for (const Task& task : tasks_) {
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::write && !has_value(task.tiles[i]))
                fail("compile: %s reads an input that is not among those given at the end",
                     task.arg.op);
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::read) filled.insert(task.tiles[i].get());
    }
    for (size_t i = 0; i < outputs_.size(); ++i)
        for (int64_t k = 0; k < outputs_[i].tiles(); ++k)
            if (!has_value(outputs_[i].tile(k)))
                fail("compile: result %zu was never given a value", i + 1);
}

// A task is needed if it writes something that persists, an output, or a temporary that a needed
// task reads later.
void Program::drop_unused() {
    std::unordered_set<const Tile*> wanted;
    for (const Tensor& output : outputs_)
        for (int64_t i = 0; i < output.tiles(); ++i) wanted.insert(output.tile(i).get());
    std::vector<char> needed(tasks_.size(), 0);
    for (size_t t = tasks_.size(); t-- > 0;) {
        const Task& task = tasks_[t];
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::read &&
                (!task.tiles[i]->recording || wanted.count(task.tiles[i].get())))
                needed[t] = 1;
        if (!needed[t]) continue;
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] == Mode::write)
                wanted.erase(task.tiles[i].get());  // what it held before is of no use
            else
                wanted.insert(task.tiles[i].get());
    }
    std::vector<Task> kept;
    std::vector<size_t> new_index(tasks_.size() + 1);
    for (size_t t = 0; t < tasks_.size(); ++t) {
        new_index[t] = kept.size();
        if (needed[t]) kept.push_back(std::move(tasks_[t]));
    }
    new_index[tasks_.size()] = kept.size();
    for (SlotStep& step : slot_steps_) step.before_task = new_index[step.before_task];
    step_begin_ = new_index[step_begin_];
    for (Part& part : parts_) part.begin = new_index[part.begin];
    tasks_ = std::move(kept);
}

void Program::find_lifetimes() {
    std::unordered_map<const Tile*, size_t> last_use;
    std::unordered_set<const Tile*> outputs, persistent;
    for (size_t t = 0; t < tasks_.size(); ++t)
        for (int i = 0; i < tasks_[t].handles; ++i) {
            const TilePtr& tile = tasks_[t].tiles[i];
            if (tile->recording) {
                last_use[tile.get()] = t;
            } else if (persistent.insert(tile.get()).second) {
                info_.persistent_bytes += int64_t(tile->bytes);
                if (tasks_[t].modes[i] != Mode::write) read_first_.push_back(tile);
            }
        }
    dies_after_.assign(tasks_.size(), {});
    int64_t live = 0;
    std::unordered_set<const Tile*> born;
    for (const Tensor& output : outputs_)
        for (int64_t i = 0; i < output.tiles(); ++i)
            if (output.tile(i)->recording && outputs.insert(output.tile(i).get()).second)
                die_at_end_.push_back(output.tile(i));
    for (const Tensor& input : inputs_)  // copied in before the first task
        for (int64_t i = 0; i < input.tiles(); ++i) {
            const TilePtr& tile = input.tile(i);
            if (!born.insert(tile.get()).second) continue;
            live += int64_t(tile->bytes);
            if (!last_use.count(tile.get()) && outputs.insert(tile.get()).second)
                die_at_end_.push_back(tile);
        }
    info_.peak_bytes = live;
    for (size_t t = 0; t < tasks_.size(); ++t) {
        for (int i = 0; i < tasks_[t].handles; ++i) {
            const Tile* tile = tasks_[t].tiles[i].get();
            if (tile->recording && born.insert(tile).second) live += int64_t(tile->bytes);
        }
        info_.peak_bytes = std::max(info_.peak_bytes, live);
        for (int i = 0; i < tasks_[t].handles; ++i) {
            const TilePtr& tile = tasks_[t].tiles[i];
            if (!tile->recording || last_use[tile.get()] != t || outputs.count(tile.get()))
                continue;
            dies_after_[t].push_back(tile);
            live -= int64_t(tile->bytes);
        }
        info_.flops += double(tasks_[t].arg.flops);
    }
    info_.tasks = int64_t(tasks_.size());
    info_.tiles = int64_t(born.size() + persistent.size());
}

// Where most of the time goes into tasks that can be split, and are worth it, workers help instead
// of taking tasks of their own.
void Program::find_help() {
    constexpr double worth_it = 20;
    double all = 0, split = 0;
    for (size_t t = step_begin_; t < tasks_.size(); ++t) {
        const double time = guessed_time(tasks_[t].arg);
        all += time;
        if (tasks_[t].splits && time > worth_it) split += time;
    }
    helped_ = split > all / 2;
    for (Task& task : tasks_) task.arg.helped = helped_;
}

// Priority: the longest path from a task to the end of the program. Only the order matters. Tasks
// that were given one keep it on top; see begin_part() for the parts of a step.
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
        path[t] += guessed_time(arg);
        for (uint32_t earlier : before[t]) path[earlier] = std::max(path[earlier], path[t]);
    }
    set_priorities(path);
}

// Tells helpers how many tasks to wait for; where a submission fails, of those that came about.
struct Expected {
    int64_t missing;
    explicit Expected(int64_t tasks) : missing(tasks) { expect_helped(tasks); }
    ~Expected() { expect_helped(-missing); }
};

void Program::submit_tasks() {
    submitted_ = true;
    const ProfileSpan span(ProfileSpan::submit);
    const ProfileRun run;
    const double start = own_seconds();
    size_t step = 0;
    Expected expected(helped_ ? int64_t(tasks_.size()) : 0);
    for (size_t t = 0; t <= tasks_.size(); ++t) {
        for (; step < slot_steps_.size() && slot_steps_[step].before_task == t; ++step)
            set_slot(slot_steps_[step].slot,
                     slot_value(slot_steps_[step].slot) + slot_steps_[step].delta);
        if (t == tasks_.size()) break;
        Task& task = tasks_[t];
        TaskArg* arg = &task.arg;
        if (!task.patches.empty()) {
            arg = static_cast<TaskArg*>(std::malloc(sizeof(TaskArg)));
            *arg = task.arg;
            apply_patches(task, arg);
        }
        submit(task, arg, arg != &task.arg);
        if (helped_) --expected.missing;
        for (const TilePtr& tile : dies_after_[t]) invalidate(*tile);
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::read && !task.tiles[i]->recording) ++task.tiles[i]->version;
    }
    if (helped_) submit_helpers();
    RuntimeStats& stats = mutable_stats();
    stats.tasks += int64_t(tasks_.size());
    stats.replayed_tasks += int64_t(tasks_.size());
    stats.replay_seconds += own_seconds() - start;
}

// Tasks in flight point at arguments that live here.
Program::~Program() {
    if (submitted_ && running()) {
        ensure_awake();
        starpu_task_wait_for_all();
    }
    for (int32_t slot : held_slots_) nn::release_slot(slot);
}

void Program::check_run(const std::vector<Tensor>& inputs) const {
    if (recording_number()) fail("compiled function: cannot run while another is being recorded");
    if (inputs.size() != inputs_.size())
        fail("compiled function: %zu tensors given, %zu expected", inputs.size(), inputs_.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i]) fail("compiled function: argument %zu is missing", i + 1);
        if (inputs[i].stale())
            fail(
                "compiled function: argument %zu is a view of a tensor that was changed in place "
                "since",
                i + 1);
        for (int64_t k = 0; k < inputs[i].tiles(); ++k)
            if (inputs[i].tile(k)->recording)
                fail("compiled function: argument %zu exists only inside of another", i + 1);
    }
    for (const TilePtr& tile : read_first_) tile->check_readable("compiled function");
    const MemoryInfo memory = memory_info();
    if (memory.budget && memory.tensors + info_.peak_bytes > memory.budget)
        throw OutOfMemory(format(
            "out of memory: a compiled function needs %s beside its arguments and parameters; %s "
            "of the budget of %s are taken",
            human_bytes(double(info_.peak_bytes)).c_str(),
            human_bytes(double(memory.tensors)).c_str(),
            human_bytes(double(memory.budget)).c_str()));
}

std::vector<Tensor> Program::run(const std::vector<Tensor>& inputs) {
    check_run(inputs);
    start();
    ensure_awake();
    wait_below(std::max<int64_t>(64, int64_t(tasks_.size())));
    std::vector<Tensor> results;  // made first: what can fail comes before anything is changed
    for (const Tensor& output : outputs_)
        results.push_back(is_temporary(output) ? Tensor(output.grid(), output.dtype()) : output);
    const InterruptsDeferred until_all_is_submitted;
    const TemporariesVisible visible;
    for (size_t i = 0; i < inputs.size(); ++i) copy_into(inputs_[i], inputs[i]);
    submit_tasks();
    set_random_counter(random_counter() + randoms_);
    for (size_t i = 0; i < results.size(); ++i)
        if (is_temporary(outputs_[i]))
            copy_into(results[i], outputs_[i]);
        else if (results[i].is_view())
            results[i] = results[i].viewed_again();
    for (const TilePtr& tile : die_at_end_) invalidate(*tile);
    return results;
}

}  // namespace nn
