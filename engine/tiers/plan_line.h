// Placements of the runs of a level, and their checks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/tiers/program_plan.h"
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
// The lines of a program: the one rule for which tiles are placed. Null if the memory, or the slots
// that exist, do not suffice for its tasks.
std::unique_ptr<ProgramLines> lines_for(const Program& program, const std::vector<double>& seconds,
                                        const PlanLimits& limits,
                                        const ExistingSlots* slots = nullptr);
// A plan of a program without a loop: its lines and blocks, not placed. Without lines if
// lines_for() is null.
ProgramPlan unplaced_plan(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, const ExistingSlots* slots = nullptr);
// Throws OutOfMemory with the smallest number of bytes of memory with which lines exist.
[[noreturn]] void refuse(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits);
// Where the tiles are that have values at an end of the line and are placed: both ends of a run in
// slots that exist.
LineEnds homes_in(uint32_t level, const Line& line, const ProgramLines& lines,
                  const ExistingSlots& slots);
// The lines of all runs that a plan has, by the order of its lines.
void set_lines(ProgramPlan& plan);
// Searches for the runs of a program without a loop, whose lines and blocks are set.
void plan_in_order(ProgramPlan& plan, const Program& program, const std::vector<double>& seconds,
                   const PlanLimits& limits);
// The runs of a plan, given the steady one.
void set_steady(ProgramPlan& plan, RunPlan run, const PlacementChoice& choice);
// Checks a run that follows others of its kind; runs around a steady one, as they follow each
// other; and all runs of the upper level.
void require_steady(const RunPlan& run);
void require_succession(const RunPlan& first, const RunPlan& next, const RunPlan& last);
void require_correct_runs(const ProgramPlan& plan);

}  // namespace nn
