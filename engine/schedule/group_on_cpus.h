// Groups of short tasks on CPU workers: a small model has hundreds of tasks in a step, of which
// many take less time than their submission.
#pragma once
#include <vector>

#include "engine/graph/gpus/gpus.h"
#include "engine/graph/program.h"

namespace nn {

// Whether a program may run in groups: it has no microbatches, there are neither other ranks nor
// memory tiers, and it is so small that its temporaries may live longer.
bool can_group_on_cpus(const Program& program);

// The tiles of tokens of a placed program. With fewer than workers, the tasks of one tile should
// run on several workers at once, so they should not be grouped.
int lanes_of(const Program& program);

// The groups of a placed program. Its peak becomes the sum of all temporaries.
std::vector<TaskGroup> group_on_cpus(Program& program, int workers);

}  // namespace nn
