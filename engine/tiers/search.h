// Searches for the fastest placement of the steady runs of a program, by prediction.
#pragma once
#include <vector>

#include "engine/tiers/line.h"
#include "engine/tiers/predict.h"
#include "engine/tiers/search_time.h"
#include "engine/tiers/uses.h"

namespace nn {

struct PlacementChoice {
    Margins margins;  // of the retention
    PlaceOptions place;
};

struct SteadyPlan {
    RunPlan run;
    OrderChoice order;
    PlacementChoice choice;
    Prediction time;
    int64_t least_moved = 0;  // bytes of a run, by any placement with this order

    bool exists() const { return time.seconds > 0; }
};

// seconds: of each task of the program. Leaves the order of the plan in `lines`. An order that
// needs more of the disk than there is is not chosen, except the first one, which needs the least:
// one microbatch after the other.
SteadyPlan find_steady_plan(const Program& program, ProgramLines& lines, uint32_t blocks,
                            const std::vector<double>& seconds, const PlanLimits& limits);

// The same for a line without other orders; seconds: of each of its tasks, by their numbers. It
// searches less. is_iteration: the line follows itself as a `repeated` run. ends: see place().
// Returns a plan that does not exist() if no placement fits.
SteadyPlan find_line_plan(const TaskLine& line, uint32_t blocks, const std::vector<double>& seconds,
                          const TierRates& rates, SearchTime& time, bool is_iteration,
                          const LineEnds* ends = nullptr);

// Transfers count a little although tasks hide them, because disks wear.
inline double score_of(const Prediction& time) {
    const double busy = time.link_busy.empty() ? 0 : time.link_busy[0];
    return time.seconds + 0.05 * busy;
}

// How many searches were made in this process.
size_t placement_searches();

// How long before its use a tile is loaded at most, if there is room. Loads are ordered by when
// they are due, so early ones do not delay others.
double longest_lead(const Line& line);
// Margins for transfers that wait so many seconds for others before they begin.
Margins margins_with_queue(const TierRates& rates, double seconds);

}  // namespace nn
