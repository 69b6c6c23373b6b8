// Plans the levels below the uppermost one (tiers/levels.h), for the runs of that one.
#pragma once
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

// Throws OutOfMemory with the smallest sufficient number of bytes. seconds: of each task of the
// program.
void add_levels(ProgramPlan& plan, const std::vector<double>& seconds, const PlanLimits& limits);
// The same in slots that exist. Returns false if the memory does not suffice.
bool add_levels_in(const ExistingSlots& slots, ProgramPlan& plan,
                   const std::vector<double>& seconds, const PlanLimits& limits);

// The lines of one more level, not placed.
void begin_level(ProgramPlan& plan, const std::vector<double>& seconds, const PlanLimits& limits);
// Checks all runs of the lowest level, and of all levels together.
void require_correct_level(const ProgramPlan& plan);

}  // namespace nn
