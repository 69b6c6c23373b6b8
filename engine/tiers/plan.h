// The plans of a program that needs more memory than there is: its lines with their placements, all
// checked. Nothing here runs or allocates anything.
#pragma once
#include <vector>

#include "engine/tiers/predict.h"
#include "engine/tiers/program_plan.h"

namespace nn {

// Chooses the order of the tasks, the slots and the transfers with which a run takes the least
// time. seconds: of each task. Throws OutOfMemory with the smallest sufficient number of bytes of
// memory. Orders that need more of the disk than there is are avoided if another one is found.
ProgramPlan plan_program(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits);

// The same in slots that exist, for a program that uses tiles of another one. Returns a plan
// without lines if the memory does not suffice.
ProgramPlan plan_in_slots(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, const ExistingSlots& slots);

}  // namespace nn
