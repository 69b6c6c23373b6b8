#include "engine/executor/replay.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/graph/builder.h"
#include "engine/graph/context.h"
#include "engine/machine/host.h"
#include "engine/memory/admission.h"
#include "engine/profile/records.h"
#include "engine/rules/copy.h"
#include "engine/runtime/rank_transfers.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/session.h"
#include "engine/runtime/submit.h"
#include "engine/schedule/group_on_cpus.h"
#include "engine/schedule/pipeline.h"
#include "engine/workers/gpu_graph.h"
#include "engine/workers/waits.h"
#include "engine/workers/worker.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

// Announces team tasks; withdraws those that a failed submission leaves out.
struct TeamTasks {
    int64_t missing;
    explicit TeamTasks(int64_t tasks) : missing(tasks) { expect_team_tasks(tasks); }
    ~TeamTasks() { expect_team_tasks(-missing); }
};

// Changes scalars as the program does, before each of its tasks.
class ScalarSteps {
public:
    explicit ScalarSteps(const Program& program)
        : step_(program.scalar_steps.begin()), end_(program.scalar_steps.end()) {}
    void before(size_t task) {
        for (; step_ != end_ && step_->before_task <= task; ++step_)
            set_scalar(step_->scalar, scalar_value(step_->scalar) + step_->delta);
    }

private:
    std::vector<Program::ScalarStep>::const_iterator step_;
    const std::vector<Program::ScalarStep>::const_iterator end_;
};

// Limits the submitted tasks of loops to as many as a program without loops would have, because
// each takes memory. A team runs only after all are submitted.
class Window {
public:
    explicit Window(const Program& program)
        : most_(program.in_team ? INT64_MAX : int64_t(program.tasks.size()) + every) {}
    void before_task() {
        if (++submitted_ % every == 0) wait_for([this] { return unfinished_tasks() <= most_; });
    }

private:
    static constexpr int every = 64;
    const int64_t most_;
    int64_t submitted_ = 0;
};

// earlier_randoms: see apply_patches().
TaskArg* argument_of(Task& task, uint64_t earlier_randoms) {
    if (task.patches.empty()) return &task.arg;
    TaskArg* const out = copy_of(task.arg);
    apply_patches(task, out, earlier_randoms);
    return out;
}

int64_t peak_of(const Program& program) {
    const int64_t peak = program.info.peak_bytes, simulated = program.simulated_peak;
    return simulated > 0 ? std::min(peak, simulated) : peak;
}

void count_writes(const Task& task) {
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i) && task.tiles[i]->persists()) ++task.tiles[i]->version;
}

}  // namespace

// Once for GPUs and once for CPUs, before the first run there.
void Replay::make_groups() {
    if (planned_ || gpus_ > 0) return;
    if (runs_on_gpus()) {
        gpus_ = int(first_streams().size());
        const int64_t memory = std::max<int64_t>(0, tile_bytes_on_gpus(host()));
        groups_ = prepare_for_gpus(*program_, gpus_, memory);
        peak_on_a_gpu_ = peak_on_a_gpu(groups_);
        for (TaskGroup& group : groups_)
            if (group.gpu >= 0 && group.tasks.size() > 1) group.graph = new_gpu_graph();
    } else if (cpus_ == 0 && first_streams().empty()) {
        cpus_ = running_cpu_workers();
        groups_ = prepare_for_cpus(*program_, cpus_);
    }
}

// On CPUs only if all temporaries may be in memory at once.
bool Replay::uses_groups() const {
    if (planned_ || groups_.empty() || profiling()) return false;
    if (gpus_ > 0) return runs_on_gpus();
    return !runs_on_gpus() && cpus_ == running_cpu_workers() &&
           fits(program_->info.temporary_bytes);
}

// StarPU would move tiles that do not fit to RAM and back, without a plan. Whoever chooses a limit
// accepts that.
void Replay::check_memory_of_gpus() const {
    const int64_t memory = memory_of_gpus(host());
    if (gpu_memory_is_chosen() || tiers().exist() || peak_on_a_gpu_ <= memory) return;
    const std::string needed = human_bytes(double(peak_on_a_gpu_)),
                      has = human_bytes(double(memory));
    const auto advised = (long long)(memory / 10 * 8 / 1000000);
    if (gpus_ > 1)
        fail(
            "compiled function: its tensors take %s on one of %d GPUs, which has %s for them; use "
            "a smaller batch or nn.activations \"recompute\", or start one process for each GPU "
            "(nnlua --ranks %d), which can keep in RAM what does not fit: nn.memory_tiers{gpu="
            "%llde6}, in recipes memory.gpu",
            needed.c_str(), gpus_, has.c_str(), gpus_, advised);
    fail(
        "compiled function: its tensors take %s of the GPU's memory, which has %s for them; use a "
        "smaller batch or nn.activations \"recompute\", or keep in RAM what does not fit, by "
        "nn.memory_tiers{gpu=%llde6} before the first tensor (in recipes memory.gpu=%lldMB)",
        needed.c_str(), has.c_str(), advised, advised);
}

// Earlier groups first: the order is made for the memory and for the transfers between GPUs. Tasks
// that are alone run before groups.
void Replay::submit_groups() {
    ScalarSteps scalars(*program_);
    std::vector<const TaskArg*> patched;
    std::vector<std::unique_ptr<TaskArg>> copies;
    for (const Task& task : program_->tasks) {
        scalars.before(patched.size());
        patched.push_back(nullptr);
        if (task.patches.empty()) continue;
        copies.push_back(std::make_unique<TaskArg>(task.arg));
        apply_patches(task, copies.back().get(), 0);
        patched.back() = copies.back().get();
    }
    scalars.before(patched.size());
    int32_t priority = 0;
    for (const TaskGroup& group : groups_) {
        if (group.gpu >= 0 || group.tasks.size() > 1) {
            submit_group(group, patched, --priority);
        } else {
            const uint32_t number = group.tasks.front();
            Task& task = program_->tasks[number];
            if (task.is_transfer())
                submit_rank_transfer(task);
            else
                submit(task, patched[number] ? copy_of(*patched[number]) : &task.arg);
        }
        for (const TilePtr& tile : group.dies_after) submit_invalidation(*tile);
    }
    for (const Task& task : program_->tasks) count_writes(task);
}

void Replay::submit_unplanned() {
    ScalarSteps scalars(*program_);
    TeamTasks team(program_->in_team ? program_->info.tasks : 0);
    Window window(*program_);
    for_each_run(*program_, [&](size_t t, uint32_t iteration, const Program::Loop* loop) {
        Task& task = program_->tasks[t];
        scalars.before(t);
        if (loop) window.before_task();
        if (!task.is_transfer())
            submit(task, argument_of(task, loop ? iteration * loop->randoms : 0), nullptr, nullptr,
                   later_priority(loop, iteration));
        else
            submit_rank_transfer(task);
        for (const TilePtr& tile : program_->dies_after[t]) submit_invalidation(*tile);
        if (loop && iteration + 1 == loop->iterations && t + 1 == loop->end)
            for (const TilePtr& tile : loop->dies_after) submit_invalidation(*tile);
        count_writes(task);
        if (program_->in_team) --team.missing;
    });
    scalars.before(program_->tasks.size());
    if (program_->in_team) submit_team();
}

void Replay::submit_planned() {
    Program& program = planned_->tasks();
    ScalarSteps scalars(program);
    std::vector<TaskArg*> arguments;
    for (Task& task : program.tasks) {
        scalars.before(arguments.size());
        arguments.push_back(argument_of(task, 0));
    }
    scalars.before(arguments.size());
    planned_->submit(arguments);
    for (const Program::Loop& loop : program.loops)
        for (size_t t = loop.begin; t < loop.end; ++t)
            if (program.tasks[t].iteration < 0 && arguments[t] != &program.tasks[t].arg)
                std::free(arguments[t]);
    for (const Task& task : program.tasks) count_writes(task);
}

void Replay::submit_tasks() {
    submitted_ = true;
    const ProfileSpan span(ProfileSpan::submit);
    const ProfileRun run;
    const double begin = thread_cpu_seconds();
    const int64_t tasks = program_->info.tasks;
    if (planned_)
        submit_planned();
    else if (uses_groups())
        submit_groups();
    else
        submit_unplanned();
    stats().tasks += tasks;
    stats().replayed_tasks += tasks;
    stats().replay_seconds += thread_cpu_seconds() - begin;
}

// Tasks in flight use arguments in the program, in its groups and in its plan. If a task hangs, a
// GPU is lost or a signal ends the wait, these are kept; the next wait raises the error again.
Replay::~Replay() {
    if (!submitted_ || !running()) return;
    struct InUse {
        std::shared_ptr<Program> program;
        std::vector<TaskGroup> groups;
        std::unique_ptr<PlannedRun> planned;
    };
    static auto* const in_use = new std::vector<InUse>;
    try {
        if (planned_ && are_deferred(planned_.get())) finish_deferred();
        wait_done();
        in_use->clear();
    } catch (const std::exception&) {
        in_use->push_back({program_, std::move(groups_), std::move(planned_)});
    }
}

void Replay::check(const std::vector<Tensor>& inputs) const {
    const std::vector<Tensor>& expected = program_->inputs;
    if (recording_number()) fail("compiled function: cannot run while another is being recorded");
    if (program_->is_plan) fail("compiled function: the recording is a plan, which cannot run");
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
                  peak = peak_of(*program_);
    const int64_t on_gpus =
        std::max<int64_t>(0, tile_bytes_on_gpus(host()) - tiers().bytes(NodeKind::gpu));
    if (!tiers().has_disk() && !fits_with_gpus(peak, on_gpus, new_handle_bytes))
        refuse_admission(peak + new_handle_bytes, "the temporaries of a compiled function");
}

std::vector<Tensor> Replay::run(const std::vector<Tensor>& inputs) {
    check(inputs);
    start();
    ensure_awake();
    if (!planned_ && needs_plan()) planned_ = std::make_unique<PlannedRun>(*program_);
    if (!planned_) finish_deferred();
    make_groups();
    if (gpus_ > 0 && runs_on_gpus() && !planned_) check_memory_of_gpus();
    const size_t submitted = uses_groups() ? groups_.size() : program_->tasks.size();
    const auto at_most = std::max<int64_t>(64, int64_t(submitted));
    wait_for([=] { return unfinished_tasks() <= at_most; });
    const std::vector<Tensor>& outputs = program_->outputs;
    std::vector<Tensor> results;  // first, because this may fail and nothing is changed yet
    for (const Tensor& output : outputs)
        results.push_back(output.temporary() ? Tensor(output.grid(), output.dtype()) : output);
    const InterruptsDeferred until_all_is_submitted;
    drop_kept_elsewhere(*program_);
    if (planned_) planned_->prepare();
    const TemporariesVisible visible;
    const uint64_t brought = tiles_brought_to_memory();
    for (size_t i = 0; i < inputs.size(); ++i) copy_into(program_->inputs[i], inputs[i]);
    // The program may use the tiles of an argument in another way too.
    if (planned_ && tiles_brought_to_memory() != brought) planned_->prepare();
    submit_tasks();
    set_random_counter(random_counter() + program_->randoms);
    for (size_t i = 0; i < results.size(); ++i)
        if (outputs[i].temporary())
            copy_into(results[i], outputs[i]);
        else if (results[i].is_view())
            results[i] = results[i].refreshed_view();
    for (const TilePtr& tile : program_->die_at_end)
        if (!planned_ || !planned_->carries(*tile)) submit_invalidation(*tile);
    return results;
}

}  // namespace nn
