#include "engine/runtime/submit.h"

#include <starpu.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/graph/product_ways.h"
#include "engine/graph/sink.h"
#include "engine/machine/ranks.h"
#include "engine/memory/arena.h"
#include "engine/profile/records.h"
#include "engine/residency/homes.h"
#include "engine/runtime/session.h"
#include "engine/workers/handles.h"
#include "engine/workers/tile_checks.h"
#include "engine/workers/waits.h"
#include "engine/workers/worker.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

static_assert(max_handles <= STARPU_NMAXBUFS,
              "StarPU must be configured with --enable-maxbuffers=16");

// Adds the time of StarPU's own calls to the statistics while profiling. It measures one call in
// 17, because reading the clock takes as long as many of these calls; few programs repeat their
// calls after 17. This clock needs no system call, unlike the thread's CPU time. Times above a
// millisecond are ignored, because the thread lost its core.
class StarpuTime {
public:
    ~StarpuTime() {
        if (!on_) return;
        const double time = starpu_timing_now() - start_;
        if (time < 1000) stats().starpu_seconds += every * time * 1e-6;
    }

private:
    static constexpr int every = 17;
    static inline uint32_t calls = 0;  // of the submitting thread
    const bool on_ = profiling() && ++calls % every == 0;
    const double start_ = on_ ? starpu_timing_now() : 0;
};

starpu_data_access_mode starpu_mode(Mode mode) {
    return mode == Mode::read ? STARPU_R : mode == Mode::write ? STARPU_W : STARPU_RW;
}

// StarPU's kinds of workers that may run a task.
int32_t workers_for(const Task& task, bool is_planned) {
    if (is_planned && tiers().on_gpu()) return STARPU_CUDA;
    const Where where = task.where == Where::anywhere ? settings().where : task.where;
    if (where == Where::gpu) return STARPU_CUDA;
    if (where == Where::cpu || !has_gpu_workers()) return STARPU_CPU;
    if (where == Where::anywhere) return STARPU_CPU | STARPU_CUDA;
    return is_planned || !task.arg.kernel->on(Device::cuda) ? STARPU_CPU : STARPU_CUDA;
}

void choose_worker(starpu_task* t, int gpu, int lane) {
    t->execute_on_a_specific_worker = 1;
    t->workerid = unsigned(worker_on(gpu, lane));
}

// One block of memory, which StarPU frees, with copies of the parameters that change between runs.
GroupArg* group_arg(const TaskGroup& group, const std::vector<const TaskArg*>& patched) {
    size_t copies = 0;
    for (const uint32_t task : group.tasks) copies += patched[task] != nullptr;
    const size_t count = group.tasks.size(),
                 list = (count * sizeof(TaskArg*) + alignof(TaskArg) - 1) / alignof(TaskArg) *
                        alignof(TaskArg);
    auto* const memory =
        static_cast<char*>(std::malloc(sizeof(GroupArg) + list + copies * sizeof(TaskArg)));
    auto* const args = reinterpret_cast<const TaskArg**>(memory + sizeof(GroupArg));
    auto* copy = reinterpret_cast<TaskArg*>(memory + sizeof(GroupArg) + list);
    for (size_t i = 0; i < count; ++i) {
        args[i] = &group.args[i];
        const TaskArg* const now = patched[group.tasks[i]];
        if (!now) continue;
        *copy = group.args[i];
        std::memcpy(copy->params, now->params, sizeof now->params);
        args[i] = copy++;
    }
    return new (memory)
        GroupArg{group.all, int(count), args, uses_cuda_graphs() ? group.graph.get() : nullptr};
}

// Tells the checks of tiles what the task reads and writes.
template <class TileAt>
void expect_values(const starpu_task* t, const Mode* modes, TileAt tile_at) {
    if (!tile_checks::on()) return;
    std::vector<tile_checks::Operand> operands(size_t(t->nbuffers));
    for (size_t i = 0; i < operands.size(); ++i) {
        Tile& tile = tile_at(i);
        operands[i].bytes = tile.bytes;
        if (modes[i] != Mode::write) operands[i].before = tile_checks::value_of(tile);
        if (modes[i] != Mode::read) operands[i].after = tile_checks::next_value(tile);
    }
    tile_checks::expect(t, std::move(operands));
}

template <class F, class... Arguments> auto timed(F call, Arguments... arguments) {
    const StarpuTime time;
    return call(arguments...);
}

}  // namespace

void note_written(Tile& tile) {
    tile.value = Tile::Value::written;
    if (tile.storage && tiers().exist()) outdate_copy(tile);
}

TaskArg* copy_of(const TaskArg& arg) { return new (std::malloc(sizeof(TaskArg))) TaskArg(arg); }

void submit(const Task& task, TaskArg* arg, void (*done)(void* arg), const PlannedTask* planned,
            int32_t lower) {
    starpu_task* t = timed(starpu_task_create);
    t->cl = codelet_of(task.arg.kernel);
    t->cl_arg = arg;
    t->cl_arg_size = sizeof(TaskArg);
    t->cl_arg_free = arg != &task.arg;
    t->nbuffers = planned ? planned->count : task.handles;
    for (int i = 0; i < t->nbuffers; ++i) {
        const bool is_placed = planned && planned->handles && planned->handles[i];
        t->handles[i] = is_placed ? planned->handles[i]
                                  : handle_of(*task.tiles[i], task.modes[i] != Mode::write);
        t->modes[i] = starpu_mode(task.modes[i]);
    }
    t->priority = planned ? planned->priority : task.priority - lower;
    t->flops = double(task.arg.flops);
    t->where = workers_for(task, planned != nullptr);
    if (task.gpu >= 0 && !planned && t->where == STARPU_CUDA) choose_worker(t, task.gpu, task.lane);
    if (done) t->callback_func = done, t->callback_arg = arg;
    if (profiling()) record_task(task, t);
    expect_values(t, task.modes, [&](size_t i) -> Tile& { return *task.tiles[i]; });
    delay(0.02);
    const int status = timed(starpu_task_submit, t);
    if (status != 0) {
        withdraw_record(t);
        if (done) done(arg);
        t->destroy = 0;
        starpu_task_destroy(t);
        fail("%s: no worker can run kernel %s here (StarPU: %s)", task.arg.op,
             task.arg.kernel->name.c_str(), std::strerror(-status));
    }
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i)) note_written(*task.tiles[i]);
}

bool runs_on_gpus() {
    const Where where = settings().where;
    return has_gpu_workers() && (where == Where::automatic || where == Where::gpu);
}

void submit_group(const TaskGroup& group, const std::vector<const TaskArg*>& patched,
                  int32_t priority) {
    starpu_task* t = timed(starpu_task_create);
    const size_t count = group.tiles.size();
    t->cl = group_codelet(count);
    t->cl_arg = group_arg(group, patched);
    t->cl_arg_size = sizeof(GroupArg);
    t->cl_arg_free = 1;
    t->nbuffers = int(count);
    starpu_data_handle_t* handles = t->handles;
    starpu_data_access_mode* modes = t->modes;
    if (count > STARPU_NMAXBUFS) {  // StarPU frees them
        handles = t->dyn_handles =
            static_cast<starpu_data_handle_t*>(std::malloc(count * sizeof *handles));
        modes = t->dyn_modes =
            static_cast<starpu_data_access_mode*>(std::malloc(count * sizeof *modes));
    }
    for (size_t i = 0; i < count; ++i) {
        Tile& tile = *group.tiles[i];
        handles[i] = handle_of(tile, group.modes[i] != Mode::write);
        modes[i] = starpu_mode(group.modes[i]);
        if (group.modes[i] != Mode::read) note_written(tile);
    }
    expect_values(t, group.modes.data(), [&](size_t i) -> Tile& { return *group.tiles[i]; });
    t->priority = priority;
    t->flops = double(group.all.flops);
    t->where = group.gpu < 0 ? STARPU_CPU : STARPU_CUDA;
    if (group.gpu >= 0) choose_worker(t, group.gpu, group.lane);
    delay(0.02);
    if (const int status = timed(starpu_task_submit, t); status != 0)
        fail("%s: no worker can run this here (StarPU: %s)", group.all.op, std::strerror(-status));
}

// GPUs cannot split tasks, so with GPUs there is no team. A team also needs a scheduler with one
// queue: a member waits for the program's tasks, which would never end if one were assigned to the
// member's worker.
void submit_team() {
    const std::string scheduler = starpu_sched_get_sched_policy()->policy_name;
    if (!first_streams().empty() || (scheduler != "prio" && scheduler != "eager")) return;
    for (int i = 1; i < running_cpu_workers(); ++i) {
        starpu_task* t = timed(starpu_task_create);
        t->cl = team_codelet();
        t->priority = INT32_MAX;
        if (profiling()) record_team_member(t);
        timed(starpu_task_submit, t);
    }
}

void submit_invalidation(Tile& tile) { timed(starpu_data_invalidate_submit, handle_of(tile)); }

// By a task that does nothing.
void submit_order(StarpuHandle next, StarpuHandle after) {
    static starpu_codelet* const codelet = nowhere_codelet("order", STARPU_VARIABLE_NBUFFERS);
    starpu_task* t = timed(starpu_task_create);
    t->cl = codelet;
    t->where = STARPU_NOWHERE;
    t->nbuffers = 2;
    t->handles[0] = next, t->handles[1] = after;
    t->modes[0] = STARPU_W, t->modes[1] = STARPU_R;
    timed(starpu_task_submit, t);
}

namespace {

// Bytes of the new tiles of eager tasks in flight. Submission runs far ahead of the workers, so
// without a limit all temporaries of a loop could be in memory at once.
std::atomic<int64_t> bytes_in_flight{0};
int64_t max_bytes() {
    const int64_t most = int64_t(256) << 20;
    return tiers().has_disk() ? std::min(most, reserved_ram() / 4) : most;
}
constexpr int64_t max_tasks = 8000;

void task_done(void* arg) { bytes_in_flight -= static_cast<TaskArg*>(arg)->fresh_bytes; }

void prepare_tiles_of(const Task& task) {
    std::vector<Tile*> tiles;
    for (int i = 0; i < task.handles; ++i) tiles.push_back(task.tiles[i].get());
    prepare_tiles(tiles);
    for (int i = 0; i < task.handles; ++i)  // reads from the disk, which may fail
        handle_of(*task.tiles[i], task.modes[i] != Mode::write);
}

// With several ranks only known ways, because each rank may submit other tasks.
std::optional<products::Way> product_way_of(const TaskArg& arg) {
    const std::optional<products::Widths> widths = product_widths(arg);
    if (!widths) return {};
    const std::optional<products::Way> known = products::known_way(products::name_of(*widths));
    if (known || ranks().several()) return known;
    idle();  // workers that poll would disturb the measurement
    return products::fastest_way(*widths);
}

void submit_now(const Task& task) {
    const ProfileSpan span(ProfileSpan::submit, &task.arg);
    start();
    const std::optional<products::Way> way = product_way_of(task.arg);
    ensure_awake();
    wait_for([] { return unfinished_tasks() <= max_tasks && bytes_in_flight <= max_bytes(); });
    if (tiers().exist()) prepare_tiles_of(task);
    TaskArg* arg = copy_of(task.arg);
    apply_scalar_patches(task, arg);
    if (way) set_product_way(*arg, *way);
    for (int i = 0; i < task.handles; ++i)
        if (task.modes[i] == Mode::write)
            arg->fresh_bytes += int64_t(arena_bytes(task.tiles[i]->bytes));
    bytes_in_flight += arg->fresh_bytes;
    submit(task, arg, arg->fresh_bytes ? task_done : nullptr);
    ++stats().tasks;
}

// The sink outside recordings.
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
        size_t submitted = 0;
        try {
            for (; submitted < tasks_.size(); ++submitted) submit_now(tasks_[submitted]);
        } catch (...) {
            if (submitted > 0) lose_changed_tiles();
            throw;
        }
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
    // An operand cannot be read from the disk after other tasks were submitted: they may have
    // changed a part of a tensor in place.
    void lose_changed_tiles() {
        for (const Task& task : tasks_)
            for (int i = 0; i < task.handles; ++i)
                if (task.writes(i)) task.tiles[i]->value = Tile::Value::failed;
    }

    bool in_op_ = false;
    std::vector<Task> tasks_;  // of the op in progress
    // Tiles that get their first value from these tasks, and their state before.
    std::vector<std::pair<TilePtr, Tile::Value>> first_written_;
};

// Never destroyed: finalizers may come after everything else.
[[maybe_unused]] Sink* const none_before = use_sink(new EagerSink);

}  // namespace
}  // namespace nn
