#include "engine/runtime/replay.h"

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/graph/builder.h"
#include "engine/graph/context.h"
#include "engine/memory/admission.h"
#include "engine/profile/records.h"
#include "engine/rules/copy.h"
#include "engine/runtime/interrupts.h"
#include "engine/runtime/session.h"
#include "engine/runtime/submit.h"
#include "engine/runtime/waits.h"
#include "engine/runtime/worker.h"
#include "engine/runtime/workers.h"

namespace nn {
namespace {

// Announces team tasks; withdraws those that a failed submission leaves out.
struct TeamTasks {
    int64_t missing;
    explicit TeamTasks(int64_t tasks) : missing(tasks) { expect_team_tasks(tasks); }
    ~TeamTasks() { expect_team_tasks(-missing); }
};

}  // namespace

void Replay::submit_tasks() {
    submitted_ = true;
    const ProfileSpan span(ProfileSpan::submit);
    const ProfileRun run;
    const double begin = thread_cpu_seconds();
    std::vector<Task>& tasks = program_->tasks;
    auto step = program_->scalar_steps.begin();
    const auto steps_end = program_->scalar_steps.end();
    TeamTasks team(program_->in_team ? int64_t(tasks.size()) : 0);
    for (size_t t = 0; t <= tasks.size(); ++t) {
        for (; step != steps_end && step->before_task == t; ++step)
            set_scalar(step->scalar, scalar_value(step->scalar) + step->delta);
        if (t == tasks.size()) break;
        Task& task = tasks[t];
        submit(task, task.patches.empty() ? &task.arg : patched_arg(task, true));
        if (program_->in_team) --team.missing;
        for (const TilePtr& tile : program_->dies_after[t]) submit_invalidation(*tile);
        for (int i = 0; i < task.handles; ++i)
            if (task.writes(i) && !task.tiles[i]->recording) ++task.tiles[i]->version;
    }
    if (program_->in_team) submit_team();
    stats().tasks += int64_t(tasks.size());
    stats().replayed_tasks += int64_t(tasks.size());
    stats().replay_seconds += thread_cpu_seconds() - begin;
}

// Tasks in flight use arguments that the program owns. If a task hangs or a signal ends the wait,
// the program is kept; the next wait raises the error again.
Replay::~Replay() {
    if (!submitted_ || !running()) return;
    static auto* const in_use = new std::vector<std::shared_ptr<Program>>;
    try {
        wait_done();
        in_use->clear();
    } catch (const std::exception&) {
        in_use->push_back(program_);
    }
}

void Replay::check(const std::vector<Tensor>& inputs) const {
    const std::vector<Tensor>& expected = program_->inputs;
    if (recording_number()) fail("compiled function: cannot run while another is being recorded");
    if (inputs.size() != expected.size())
        fail("compiled function: %zu tensors given, %zu expected", inputs.size(), expected.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i]) fail("compiled function: argument %zu is missing", i + 1);
        if (inputs[i].stale())
            fail(
                "compiled function: argument %zu is a view of a tensor that was changed in place "
                "since",
                i + 1);
        if (inputs[i].temporary())
            fail("compiled function: argument %zu exists only inside another one", i + 1);
    }
    for (const TilePtr& tile : program_->read_first) tile->check_readable("compiled function");
    const int64_t new_handle_bytes = submitted_ ? 0 : program_->info.tiles * handle_bytes,
                  needed = program_->info.peak_bytes + new_handle_bytes;
    if (!fits(needed)) refuse_admission(needed, "the temporaries of a compiled function");
}

std::vector<Tensor> Replay::run(const std::vector<Tensor>& inputs) {
    check(inputs);
    start();
    ensure_awake();
    const auto at_most = std::max<int64_t>(64, int64_t(program_->tasks.size()));
    wait_for([=] { return unfinished_tasks() <= at_most; });
    const std::vector<Tensor>& outputs = program_->outputs;
    std::vector<Tensor> results;  // first, because this may fail and nothing is changed yet
    for (const Tensor& output : outputs)
        results.push_back(output.temporary() ? Tensor(output.grid(), output.dtype()) : output);
    const InterruptsDeferred until_all_is_submitted;
    const TemporariesVisible visible;
    for (size_t i = 0; i < inputs.size(); ++i) copy_into(program_->inputs[i], inputs[i]);
    submit_tasks();
    set_random_counter(random_counter() + program_->randoms);
    for (size_t i = 0; i < results.size(); ++i)
        if (outputs[i].temporary())
            copy_into(results[i], outputs[i]);
        else if (results[i].is_view())
            results[i] = results[i].refreshed_view();
    for (const TilePtr& tile : program_->die_at_end) submit_invalidation(*tile);
    return results;
}

}  // namespace nn
