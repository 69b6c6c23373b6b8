// Placements of the runs of a level, all checked.
#pragma once
#include <string>

#include "engine/tiers/search.h"

namespace nn {

// Throws Error if a check has found a problem.
void require_correct(const std::string& problem);

// Places a line whose ends are given; with less and less memory for tiles between their uses if the
// slots do not fit.
RunPlan plan_line(TaskLine line, uint32_t blocks, PlacementChoice choice, const LineEnds& ends);

// The first choice of a placement if no search is made.
PlacementChoice default_choice(const Line& line, const TierRates& rates);

// The runs of a level with deferred tasks: see ProgramPlan. first and last begin with their lines;
// next is placed.
struct LevelRuns {
    RunPlan &first, &next, &last;
};
void plan_around(const LevelRuns& runs, const ProgramLines& lines, uint32_t blocks,
                 const PlacementChoice& choice);
// Checks a run that follows others of its kind.
void require_steady(const RunPlan& run);

}  // namespace nn
