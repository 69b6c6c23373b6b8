// Runs tasks on workers: one generic codelet converts StarPU's buffers to pointers and calls the
// kernel. A kernel's error fails the task's dependents (runtime/failures.h).
#pragma once
#include <cstdint>

#include "kernels/kernel.h"

struct starpu_codelet;

namespace nn {

starpu_codelet* codelet_of(const Kernel* kernel);

// A worker that runs this codelet joins the team (kernels/team.h) until no team task is left.
// expect_team_tasks() announces tasks with TaskArg::in_team before they are submitted; a negative
// number withdraws those that were not submitted.
starpu_codelet* team_codelet();
void expect_team_tasks(int64_t tasks);

}  // namespace nn
