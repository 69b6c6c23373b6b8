// Handing tasks to StarPU, and what happens on its workers: one generic codelet, kernel errors and
// what they make fail, and the bound on eager tasks in flight.
#include <starpu.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_set>

#include "engine/costs.h"
#include "engine/error.h"
#include "engine/gpu.h"
#include "engine/profile.h"
#include "engine/runtime.h"
#include "engine/task.h"
#include "engine/watchdog.h"
#include "kernels/team.h"

namespace nn {
namespace {

// Adds the time of StarPU's own calls to the statistics while profiling, for "microseconds a task
// beyond StarPU's". One call in 17 is timed and stands for all: reading the clock takes as long as
// many of these calls do, and few programs make the same calls 17 at a time. The clock is not that
// of own_seconds(), which takes a system call; what is longer than a millisecond is left out, since
// the core was taken away then.
class StarpuTime {
public:
    ~StarpuTime() {
        if (!on_) return;
        const double time = starpu_timing_now() - start_;
        if (time < 1000) mutable_stats().starpu_seconds += every * time * 1e-6;
    }

private:
    static constexpr int every = 17;
    static inline uint32_t calls = 0;  // of the submitting thread
    const bool on_ = profiling() && ++calls % every == 0;
    const double start_ = on_ ? starpu_timing_now() : 0;
};

// Handles whose values failed tasks were to give. A task that needs one of them is not run, and its
// results fail too; only an op that works in place leaves the value that was there. So an error in
// the forward pass reaches no parameter.
struct Failures {
    std::mutex mutex;
    std::unordered_set<starpu_data_handle_t> handles;
    std::atomic<bool> any{false};
};
Failures& failures() {
    static auto* const instance = new Failures;
    return *instance;
}

void note_failure(const TaskArg& arg, bool has_run) {
    const starpu_task* t = starpu_task_get_current();
    const bool keeps = !has_run && arg.in_place;
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] == STARPU_W || (t->modes[i] == STARPU_RW && !keeps))
            failures().handles.insert(t->handles[i]);
    failures().any = true;
}

bool needs_failed_value() {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] != STARPU_W && failures().handles.count(t->handles[i])) return true;
    return false;
}

// A value that is written anew is good again.
void note_success() {
    const starpu_task* t = starpu_task_get_current();
    std::lock_guard lock(failures().mutex);
    for (int i = 0; i < t->nbuffers; ++i)
        if (t->modes[i] == STARPU_W) failures().handles.erase(t->handles[i]);
}

// What becomes of a task whose kernel is done: `error` is "" when it succeeded.
void note_result(const TaskArg& arg, const std::string& error) {
    if (error.empty()) {
        if (failures().any) note_success();
        return;
    }
    note_failure(arg, true);
    report_kernel_error(arg, error);
}

std::atomic<int64_t> helped_tasks{0};  // submitted and not yet run

// NNLUA_POISON=1, for tests: what a task writes anew is all NaN before (-1 for integers).
bool poisons() {
    static const bool on = std::getenv("NNLUA_POISON") != nullptr;
    return on;
}
void poison(void* buffers[], bool gpu) {
    const starpu_task* t = starpu_task_get_current();
    for (int i = 0; i < t->nbuffers; ++i) {
        if (t->modes[i] != STARPU_W) continue;
        void* data = reinterpret_cast<void*>(STARPU_VARIABLE_GET_PTR(buffers[i]));
        const size_t bytes = STARPU_VARIABLE_GET_ELEMSIZE(buffers[i]);
        if (gpu)
            poison_on_gpu(data, bytes);
        else
            std::memset(data, 0xFF, bytes);
    }
}

std::string run_kernel_on_cpu(const TaskArg& arg, void* const* operands) {
    if (take_failure()) return "fails, as NNLUA_FAIL_KERNEL asks";
    std::string error;
    arg.kernel->cpu(KernelCall{operands, arg.params, arg.dtype, nullptr, &error});
    return error;
}

void skip(const TaskArg& arg) {
    note_failure(arg, false);
    if (!profiling()) return;
    if (TaskRecord* record = current_record()) record->skipped = true;
}

// On a GPU the kernel has only been started when this returns; note_result comes again at its end.
void run_on_worker(void* buffers[], const TaskArg& arg, bool gpu) {
    if (failures().any && needs_failed_value()) return skip(arg);
    void* operands[max_operands];
    for (int i = 0; i < arg.operands; ++i)
        operands[i] =
            arg.buffer_of[i] < 0
                ? nullptr
                : reinterpret_cast<void*>(STARPU_VARIABLE_GET_PTR(buffers[arg.buffer_of[i]]));
    std::string error;
    const Watched watched(arg);
    try {
        if (poisons()) poison(buffers, gpu);
        announce_call(arg.kernel->name.c_str());
        error = gpu ? run_on_gpu(arg, operands, note_result) : run_kernel_on_cpu(arg, operands);
    } catch (const std::exception& e) {
        error = e.what();
    }
    if (!gpu || !error.empty()) note_result(arg, error);
}

void run_on_cpu(void* buffers[], void* cl_arg) {
    const TaskArg& arg = *static_cast<TaskArg*>(cl_arg);
    {
        const KernelTimer timer;
        run_on_worker(buffers, arg, false);
    }
    if (arg.helped) --helped_tasks;
}

// Ends with the last task, so that a worker is never kept from what comes after.
void help_on_cpu(void*[], void*) {
    const KernelTimer timer;
    team::help(int(starpu_cpu_worker_get_count()) - 1, [] { return helped_tasks > 0; });
}

#if defined(NN_CUDA) && defined(STARPU_USE_CUDA)
void run_on_cuda(void* buffers[], void* cl_arg) {
    const TaskArg& arg = *static_cast<TaskArg*>(cl_arg);
    run_on_worker(buffers, arg, true);
    if (arg.helped) --helped_tasks;
}
#endif

static_assert(max_operands <= STARPU_NMAXBUFS,
              "StarPU must be configured with --enable-maxbuffers=16");

// One codelet per kernel, all with the same function: the name serves profiles and traces. They
// live for ever, since tasks may outlive anything else.
starpu_codelet* codelet_of(const Kernel* kernel) {
    static auto* const codelets = new std::map<const Kernel*, starpu_codelet*>;
    starpu_codelet*& codelet = (*codelets)[kernel];
    if (codelet) {
        codelet->model = cost_model();
        return codelet;
    }
    codelet = static_cast<starpu_codelet*>(std::calloc(1, sizeof(starpu_codelet)));
    starpu_codelet_init(codelet);
    codelet->name = kernel->name.c_str();
    codelet->model = cost_model();
    codelet->nbuffers = STARPU_VARIABLE_NBUFFERS;
    if (kernel->cpu) codelet->cpu_funcs[0] = run_on_cpu;
#if defined(NN_CUDA) && defined(STARPU_USE_CUDA)
    if (kernel->cuda) {
        codelet->cuda_funcs[0] = run_on_cuda;
        codelet->cuda_flags[0] = STARPU_CUDA_ASYNC;
    }
#endif
    return codelet;
}

starpu_data_access_mode starpu_mode(Mode mode) {
    return mode == Mode::read ? STARPU_R : mode == Mode::write ? STARPU_W : STARPU_RW;
}

starpu_task* create_task() {
    const StarpuTime time;
    return starpu_task_create();
}

int submit_task(starpu_task* t) {
    const StarpuTime time;
    return starpu_task_submit(t);
}

}  // namespace

bool has_failed_value(starpu_data_handle_t handle) {
    if (!failures().any) return false;
    std::lock_guard lock(failures().mutex);
    return failures().handles.count(handle) > 0;
}

void forget_failed_values() {
    Failures& f = failures();
    std::unordered_set<starpu_data_handle_t> handles;
    {
        std::lock_guard lock(f.mutex);
        handles.swap(f.handles);
        f.any = false;
    }
    forget_values(handles);
}

void invalidate(Tile& tile) {
    const StarpuTime time;
    starpu_data_invalidate_submit(tile.handle());
}

namespace {

// Bytes that eager tasks in flight write anew. Submission is far ahead of the workers, and a
// scheduler likes to run what was submitted together: without a bound, a loop over temporaries
// would hold all of them at once.
std::atomic<int64_t> eager_bytes{0};
constexpr int64_t eager_limit = int64_t(256) << 20;

void eager_task_done(void* arg) { eager_bytes -= static_cast<TaskArg*>(arg)->fresh_bytes; }

}  // namespace

void submit(const Task& task, TaskArg* arg, bool owned) {
    starpu_task* t = create_task();
    t->cl = codelet_of(task.arg.kernel);
    t->cl_arg = arg;
    t->cl_arg_size = sizeof(TaskArg);
    t->cl_arg_free = owned;
    t->nbuffers = task.handles;
    for (int i = 0; i < task.handles; ++i) {
        t->handles[i] = task.tiles[i]->handle();
        t->modes[i] = starpu_mode(task.modes[i]);
    }
    t->priority = task.priority;
    t->flops = double(task.arg.flops);
    if (const uint32_t where = task.where ? task.where : tasks_place()) t->where = int32_t(where);
    if (arg->fresh_bytes) {
        t->callback_func = eager_task_done;
        t->callback_arg = arg;
    }
    if (profiling()) record_task(task, t);
    const int status = submit_task(t);
    if (status != 0) {
        withdraw_record(t);
        eager_bytes -= arg->fresh_bytes;
        t->destroy = 0;
        starpu_task_destroy(t);
        fail("%s: no worker can run kernel %s here (StarPU says %s)", task.arg.op,
             task.arg.kernel->name.c_str(), std::strerror(-status));
    }
    for (int i = 0; i < task.handles; ++i)
        if (task.modes[i] != Mode::read) task.tiles[i]->set_written();
}

static void fill_slot(const Patch& patch, TaskArg* arg) {
    const double value = slot_value(patch.slot_id);
    std::memcpy(arg->params + patch.offset, &value, sizeof value);
}

void apply_patches(const Task& task, TaskArg* arg) {
    for (const Patch& patch : task.patches) {
        unsigned char* at = arg->params + patch.offset;
        if (patch.kind == Patch::slot) {
            fill_slot(patch, arg);
        } else {
            uint64_t key[2];
            std::memcpy(key, at, sizeof key);
            key[0] = random_seed();
            key[1] += random_counter();
            std::memcpy(at, key, sizeof key);
        }
    }
}

void expect_helped(int64_t tasks) { helped_tasks += tasks; }

// With GPUs, on which no task is split, nobody helps.
void submit_helpers() {
    static starpu_codelet* const codelet = [] {
        auto* made = static_cast<starpu_codelet*>(std::calloc(1, sizeof(starpu_codelet)));
        starpu_codelet_init(made);
        made->name = "help";
        made->cpu_funcs[0] = help_on_cpu;
        return made;
    }();
    if (gpus() > 0) return;
    for (int i = 1; i < cpu_workers(); ++i) {
        starpu_task* t = create_task();
        t->cl = codelet;
        t->priority = INT32_MAX;
        if (profiling()) record_helper(t);
        submit_task(t);
    }
}

void submit_now(const Task& task) {
    const ProfileSpan span(ProfileSpan::submit, &task.arg);
    start();
    ensure_awake();
    wait_below(8000);
    wait_for([] { return eager_bytes <= eager_limit; });
    TaskArg* arg = static_cast<TaskArg*>(std::malloc(sizeof(TaskArg)));
    *arg = task.arg;
    for (const Patch& patch : task.patches)
        if (patch.kind == Patch::slot) fill_slot(patch, arg);
    for (int i = 0; i < task.handles; ++i)
        if (task.modes[i] == Mode::write) arg->fresh_bytes += int64_t(task.tiles[i]->bytes);
    eager_bytes += arg->fresh_bytes;
    submit(task, arg, true);
    ++mutable_stats().tasks;
}

}  // namespace nn
