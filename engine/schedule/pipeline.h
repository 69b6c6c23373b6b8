// Everything that happens to a program between its recording and its runs, in order. Nothing else
// changes the tasks of a program.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/graph/gpus/gpus.h"
#include "engine/graph/program.h"

namespace nn {

// Makes a recorded program ready to run.
void prepare(Program& program);

// The last part of prepare().
void schedule_tasks(Program& program);

// The parts of the ranks other than this one in a prepared plan, in their order, or none.
std::vector<std::unique_ptr<Program>> parts_of_others(const Program& plan);

// Makes a prepared program ready for the plans of memory tiers (tiers/plan.h). These choose an
// order and places, and may cut the loop of a copy, but do not change the program.
void prepare_for_tiers(Program& program);

// Makes a prepared program ready for so many GPUs, before its first run on them. memory: the bytes
// of one of them. Returns the tasks in groups, in the order of their submission.
std::vector<TaskGroup> prepare_for_gpus(Program& program, int gpus, int64_t memory);
// The same for so many CPU workers; nothing if the tasks should be submitted one by one.
std::vector<TaskGroup> prepare_for_cpus(Program& program, int workers);

}  // namespace nn
