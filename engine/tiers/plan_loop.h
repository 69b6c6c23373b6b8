// Plans of programs with a loop (Program::loops), in time and memory that hardly depend on its
// iterations. An iteration of the plan serves one or several microbatches and begins and ends with
// the same tiles in the same slots, so one placement holds for all iterations.
#pragma once
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

// As plan_program(), or in slots that exist. Returns a plan without lines if these do not suffice.
ProgramPlan plan_loop(const Program& program, const std::vector<double>& seconds,
                      const PlanLimits& limits, const ExistingSlots* slots = nullptr);

// The same without placements, with a chosen cut of the loop; without copies in the cut, no loop
// remains. Without lines if the memory does not suffice for the cut.
ProgramPlan cut_plan(const Program& program, const std::vector<double>& seconds,
                     const PlanLimits& limits, const LoopCut& cut,
                     const ExistingSlots* slots = nullptr);

}  // namespace nn
