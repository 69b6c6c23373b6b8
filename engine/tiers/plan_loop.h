// Plans of programs with a loop (Program::loops), in time and memory that hardly depend on its
// iterations. An iteration of the plan serves one or several microbatches and begins and ends with
// the same tiles in the same slots, so one placement holds for all iterations.
#pragma once
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

// blocks: of slots that exist; 0: as many as the memory has. As plan_program().
ProgramPlan plan_loop(const Program& program, const std::vector<double>& seconds,
                      const PlanLimits& limits, uint32_t blocks = 0);

// The same without placements, with a chosen cut of the loop; without copies in the cut, no loop
// remains.
ProgramPlan cut_plan(const Program& program, const std::vector<double>& seconds,
                     const PlanLimits& limits, const LoopCut& cut, uint32_t blocks = 0);

}  // namespace nn
