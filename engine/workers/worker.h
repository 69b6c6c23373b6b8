// Runs tasks on workers: one generic codelet converts StarPU's buffers to pointers and calls the
// kernel. A kernel's error fails the task's dependents (workers/failures.h).
#pragma once
#include <cstdint>

#include "engine/graph/task.h"

struct starpu_codelet;

namespace nn {

starpu_codelet* codelet_of(const Kernel* kernel);

// Runs the tasks of a GroupArg, which have so many tiles. Main thread only.
starpu_codelet* group_codelet(size_t tiles);

// A new codelet that no worker runs; its tasks end at once. It is never freed.
starpu_codelet* nowhere_codelet(const char* name, int buffers);

// A worker that runs this codelet joins the team (kernels/team.h) until no team task is left.
// expect_team_tasks() announces tasks with TaskArg::in_team before they are submitted; a negative
// number withdraws those that were not submitted.
starpu_codelet* team_codelet();
void expect_team_tasks(int64_t tasks);

}  // namespace nn
