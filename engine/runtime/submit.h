// Handing tasks to StarPU, in a replay or as ops emit them. Submitting thread only.
#pragma once
#include <cstdint>

#include "engine/graph/task.h"

namespace nn {

TaskArg* patched_arg(const Task& task, bool recorded);  // a copy; see apply_patches()
// `arg` is the task's own, which then must outlive the submitted task, or a patched_arg(), which
// StarPU frees. done(arg), if given, is called on a worker when the task is over.
void submit(const Task& task, TaskArg* arg, void (*done)(void* arg) = nullptr);
// Makes all workers but one join the team until the expected team tasks have run
// (runtime/worker.h). Submitted after those tasks: the submission takes a core's time too.
void submit_team();
// StarPU frees the value after the last submitted task that uses it.
void submit_invalidation(Tile& tile);

// Counters of the session.
struct Stats {
    int64_t tasks = 0, replayed_tasks = 0;
    double replay_seconds = 0;  // CPU time of submitting replayed tasks
    double starpu_seconds = 0;  // of which in StarPU's calls, estimated while profiling
    int64_t earlier_tasks = 0;  // before the numbers above were cleared
};
inline Stats counters;
inline Stats& stats() { return counters; }

}  // namespace nn
