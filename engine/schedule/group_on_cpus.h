// Groups of short tasks on CPU workers: a small model has hundreds of tasks in a step, of which
// many take less time than their submission.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/graph/gpus/gpus.h"
#include "engine/graph/program.h"

namespace nn {

// Whether a program may run in groups: it has no microbatches and no team, there are neither other
// ranks nor memory tiers, and its temporaries are so small that they may live longer.
bool can_group_on_cpus(const Program& program);

// The groups of a placed program. None if it has fewer tiles of tokens than there are workers:
// then several workers share the tasks of one tile.
std::vector<TaskGroup> group_on_cpus(Program& program, int workers);

void forget_places(Program& program);  // undoes place_on_gpus()

}  // namespace nn
