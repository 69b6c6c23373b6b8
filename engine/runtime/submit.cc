#include "engine/runtime/submit.h"

#include <starpu.h>

#include <cstring>

#include "engine/base/error.h"
#include "engine/profile/records.h"
#include "engine/runtime/handles.h"
#include "engine/runtime/worker.h"
#include "engine/runtime/workers.h"

namespace nn {
namespace {

static_assert(max_handles <= STARPU_NMAXBUFS,
              "StarPU must be configured with --enable-maxbuffers=16");

// Adds the time of StarPU's own calls to the statistics while profiling. One call in 17 is timed
// and stands for all: reading the clock takes as long as many of these calls do, and few programs
// make the same calls 17 at a time. This clock needs no system call, unlike the thread's CPU time;
// times above a millisecond are left out, since the thread lost its core then.
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

starpu_task* create_task() {
    const StarpuTime time;
    return starpu_task_create();
}

int submit_task(starpu_task* t) {
    const StarpuTime time;
    return starpu_task_submit(t);
}

}  // namespace

void submit(const Task& task, TaskArg* arg, bool owned, void (*done)(void* arg)) {
    starpu_task* t = create_task();
    t->cl = codelet_of(task.arg.kernel);
    t->cl_arg = arg;
    t->cl_arg_size = sizeof(TaskArg);
    t->cl_arg_free = owned;
    t->nbuffers = task.handles;
    for (int i = 0; i < task.handles; ++i) {
        t->handles[i] = handle_of(*task.tiles[i]);
        t->modes[i] = starpu_mode(task.modes[i]);
    }
    t->priority = task.priority;
    t->flops = double(task.arg.flops);
    const Where where = task.where == Where::anywhere ? settings().where : task.where;
    if (where != Where::anywhere) t->where = where == Where::cpu ? STARPU_CPU : STARPU_CUDA;
    if (done) t->callback_func = done, t->callback_arg = arg;
    if (profiling()) record_task(task, t);
    const int status = submit_task(t);
    if (status != 0) {
        withdraw_record(t);
        if (done) done(arg);
        t->destroy = 0;
        starpu_task_destroy(t);
        fail("%s: no worker can run kernel %s here (StarPU says %s)", task.arg.op,
             task.arg.kernel->name.c_str(), std::strerror(-status));
    }
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i)) task.tiles[i]->value = Tile::Value::written;
}

// GPUs split no task, so nobody would use a team beside them.
void submit_team() {
    if (!first_streams().empty()) return;
    for (int i = 1; i < running_cpu_workers(); ++i) {
        starpu_task* t = create_task();
        t->cl = team_codelet();
        t->priority = INT32_MAX;
        if (profiling()) record_team_member(t);
        submit_task(t);
    }
}

void submit_invalidation(Tile& tile) {
    const StarpuTime time;
    invalidate(tile);
}

}  // namespace nn
