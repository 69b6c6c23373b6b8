// Submits tasks to StarPU, for replays and for eager ops. Submitting thread only.
#pragma once
#include <cstdint>

#include "engine/graph/gpus/gpus.h"
#include "engine/graph/task.h"
#include "engine/workers/handles.h"

namespace nn {

TaskArg* copy_of(const TaskArg& arg);  // which StarPU frees after the task
// The handles of a task's tiles if they are in slots; null for others, or if none is.
struct PlannedTask {
    const StarpuHandle* handles;
    int count;
    int32_t priority;
};
// arg: &task.arg, which must then outlive the submitted task, or a copy_of(), which StarPU
// frees. A worker calls done(arg), if given, when the task ends. planned: null if StarPU manages
// the memory of all tiles. lower: by how much its priority is lower than Task::priority.
void submit(const Task& task, TaskArg* arg, void (*done)(void* arg) = nullptr,
            const PlannedTask* planned = nullptr, int32_t lower = 0);
// Whether tasks that are not planned run on GPUs only, so that each may run on its Task::gpu.
bool runs_on_gpus();
// patched: by the task's number in the program, its parameters for this run; null if they are as
// recorded. The group must outlive the submitted task.
void submit_group(const TaskGroup& group, const std::vector<const TaskArg*>& patched,
                  int32_t priority);
// Makes all workers but one join the team until the expected team tasks have run
// (workers/worker.h). Call it after submitting those tasks: the submission needs a core too.
void submit_team();
// StarPU frees the tile's memory after the last submitted task that uses it.
void submit_invalidation(Tile& tile);
// The next task that writes a tile waits until another one is computed. Handles of the two tiles.
void submit_order(StarpuHandle next, StarpuHandle after);
void note_written(Tile& tile);  // its state after the submission of a task that writes it

// Counters of the session.
struct Stats {
    int64_t tasks = 0, replayed_tasks = 0;
    double replay_seconds = 0;  // CPU time of submitting replayed tasks
    double starpu_seconds = 0;  // of these, inside StarPU; estimated while profiling
    int64_t earlier_tasks = 0;  // before the numbers above were cleared
};
inline Stats counters;
inline Stats& stats() { return counters; }

}  // namespace nn
