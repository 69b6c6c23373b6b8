// The plans of a program that needs more memory than there is: its lines with their placements, all
// checked. Nothing here runs or allocates anything.
#pragma once
#include <utility>
#include <vector>

#include "engine/tiers/predict.h"
#include "engine/tiers/program_plan.h"

namespace nn {

Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const PlanLimits& limits);

// Bytes of the tiles that have a place below the level of these runs: persistent ones, and
// temporaries that leave their slots.
int64_t bytes_below(const ProgramPlan& plan,
                    const std::vector<std::pair<const RunPlan*, uint32_t>>& runs);

// Chooses the order of the tasks, the slots and the transfers with which a run takes the least
// time. seconds: of each task. Throws OutOfMemory with the smallest sufficient number of bytes of
// memory.
ProgramPlan plan_program(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits);

// The same in slots that exist, for a program that uses tiles of another one. Returns a plan
// without lines if the memory does not suffice.
ProgramPlan plan_in_slots(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, const ExistingSlots& slots);

}  // namespace nn
