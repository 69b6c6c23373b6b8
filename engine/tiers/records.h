// What StarPU keeps for a planned program while it runs: a handle for every slot, every place in
// the store and every tile outside of slots, and the tasks and transfers in flight.
#pragma once
#include "engine/machine/memory_limit.h"
#include "engine/tiers/program_plan.h"

namespace nn {

// program: the one that the plan is for.
EngineRecords records_of(const ProgramPlan& plan, const Program& program);
// The same for a program that runs without slots.
EngineRecords records_of(const Program& program);

}  // namespace nn
