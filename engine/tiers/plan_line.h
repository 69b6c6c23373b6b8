// Placements of the runs of a level, and their checks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/tiers/program_plan.h"
#include "engine/tiers/search.h"

namespace nn {

// Bytes. Smaller tiles stay outside of slots if they are few.
constexpr size_t small_tile = size_t(64) << 10;

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
// The lines of a program, and the blocks of memory for its slots. Throws OutOfMemory.
std::unique_ptr<ProgramLines> lines_for(const Program& program, const std::vector<double>& seconds,
                                        const PlanLimits& limits);
uint32_t blocks_for(const ProgramLines& lines, const PlanLimits& limits);
// Bytes of the memory that tiles outside of slots take.
int64_t beside_slots(const ProgramLines& lines, const PlanLimits& limits);
// A plan of a program without a loop: its lines and blocks, not placed. Throws OutOfMemory.
ProgramPlan unplaced_plan(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits);
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
