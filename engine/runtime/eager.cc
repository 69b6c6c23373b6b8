// Eager submission: the sink of tasks while nothing is recorded.
#include <atomic>
#include <cstdlib>
#include <vector>

#include "engine/graph/context.h"
#include "engine/graph/sink.h"
#include "engine/profile/records.h"
#include "engine/runtime/interrupts.h"
#include "engine/runtime/session.h"
#include "engine/runtime/submit.h"
#include "engine/runtime/waits.h"

namespace nn {
namespace {

// Bytes that eager tasks in flight write anew. Submission is far ahead of the workers, and a
// scheduler likes to run what was submitted together: without a bound, a loop over temporaries
// would hold all of them at once.
std::atomic<int64_t> bytes_in_flight{0};
constexpr int64_t most_bytes = int64_t(256) << 20;
constexpr int64_t most_tasks = 8000;

void task_done(void* arg) { bytes_in_flight -= static_cast<TaskArg*>(arg)->fresh_bytes; }

void submit_now(const Task& task) {
    const ProfileSpan span(ProfileSpan::submit, &task.arg);
    start();
    ensure_awake();
    wait_below(most_tasks);
    wait_for([] { return bytes_in_flight <= most_bytes; });
    TaskArg* arg = static_cast<TaskArg*>(std::malloc(sizeof(TaskArg)));
    *arg = task.arg;
    apply_patches(task, arg, false);
    for (int i = 0; i < task.handles; ++i)
        if (task.modes[i] == Mode::write) arg->fresh_bytes += int64_t(task.tiles[i]->bytes);
    bytes_in_flight += arg->fresh_bytes;
    submit(task, arg, true, arg->fresh_bytes ? task_done : nullptr);
    ++stats().tasks;
}

class EagerSink : public Sink {
public:
    void emit(Task&& task) override {
        if (!in_op_) return submit_now(task);
        start();
        for (int i = 0; i < task.handles; ++i) {
            Tile& tile = *task.tiles[i];
            if (!task.writes(i) || tile.has_value()) continue;
            first_written_.push_back({task.tiles[i], tile.value});
            tile.value = Tile::Value::written;
        }
        tasks_.push_back(std::move(task));
    }
    uint64_t next_random() override {
        const uint64_t counter = random_counter();
        set_random_counter(counter + 1);
        return counter;
    }
    void add_to_scalar(int32_t scalar, double delta) override {
        set_scalar(scalar, scalar_value(scalar) + delta);
    }

    void begin_op() override { in_op_ = true; }
    void commit_op() override {
        const InterruptsDeferred until_all_are_submitted;
        const ProfileSpan span(ProfileSpan::submit, tasks_.empty() ? nullptr : &tasks_.front().arg);
        for (const Task& task : tasks_) submit_now(task);
        first_written_.clear();
        tasks_.clear();
    }
    void end_op() override {
        in_op_ = false;
        for (const auto& [tile, value] : first_written_) tile->value = value;
        first_written_.clear();
        tasks_.clear();
    }

private:
    bool in_op_ = false;
    std::vector<Task> tasks_;  // of the op in progress
    // Tiles that only these tasks give a value, and what they had before.
    std::vector<std::pair<TilePtr, Tile::Value>> first_written_;
};

const bool installed = [] {
    use_sink(new EagerSink);  // never destroyed: finalizers may come after everything else
    return true;
}();

}  // namespace
}  // namespace nn
