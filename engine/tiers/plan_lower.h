// Plans the lower of two levels (tiers/levels.h), for the runs of the upper one.
#pragma once
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

// Throws OutOfMemory with the smallest sufficient number of bytes. seconds: of each task of the
// program.
void add_lower_level(ProgramPlan& plan, const std::vector<double>& seconds,
                     const PlanLimits& limits);
// The same in slots that exist. Returns false if the memory does not suffice.
bool add_lower_level_in(const ExistingSlots& slots, ProgramPlan& plan,
                        const std::vector<double>& seconds, const PlanLimits& limits);

// The lines of the lower level, not placed. rates: of the upper level's transfers.
void begin_lower_level(ProgramPlan& plan, const std::vector<double>& seconds,
                       const TierRates& rates);
void require_correct_levels(const ProgramPlan& plan);  // checks all runs of both levels

}  // namespace nn
