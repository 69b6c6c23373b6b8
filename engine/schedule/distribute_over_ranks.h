#pragma once
#include "engine/graph/program.h"

namespace nn {

// Whether each rank runs a part of the program: it splits its batch into shards, or reads weights
// that only other ranks keep. Other programs run on every rank as a whole. The ranks of a plan are
// those of the described machine (machine/description.h), and no rank waits for another one.
bool is_distributed(const Program& program);

// Throws an Error if other ranks recorded another program.
void check_equal_on_ranks(Program& program);

void choose_owners_on_ranks(Program& program);  // graph/passes/owners.h

// With memory tiers, the tasks and transfers of a rank run in a fixed order. So all ranks follow
// one order of all tasks, or they could wait for each other forever.
void order_for_ranks(Program& program);

// Keeps this rank's part (graph/passes/distribute.h). In a plan, Program::whole keeps all.
void distribute_over_ranks(Program& program);
// The same on a copy on which choices are tried: other ranks need not call it.
void distribute_trial(Program& program);
// The same for any rank of a plan.
void distribute_plan(Program& program, int rank);

}  // namespace nn
