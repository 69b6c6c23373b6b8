// Two levels of planned memory: slots on a GPU above slots in RAM, and the disk below both. The
// upper level is planned first. Its transfers are the tasks of the lower level: a load reads a tile
// there, and a store writes one. So the same planner places both levels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/tiers/run_plan.h"

namespace nn {

// The lower level of a ProgramPlan, for each of its runs. The tasks of these lines are numbers of
// steps of the upper placement.
struct LowerPlan {
    uint32_t blocks = 0;  // of the memory of its slots
    RunPlan first, next, last;
    int64_t least_moved = 0;  // bytes of a steady run, by any placement of these transfers
};

// The transfers of a run as a line. pace: the seconds of a run over those of its line, in which
// nothing waits. rates: of the transfers.
TaskLine lower_line(const RunPlan& upper, double pace, const TierRates& rates);

// The steps of both levels in the order of their submission. lower: null if there is one level.
struct LevelStep {
    const Placement::Step* step;
    bool is_lower;
    uint32_t slot_below;  // of a transfer of the upper level: the tile's slot in the lower one
};
std::vector<LevelStep> merged_steps(const RunPlan& upper, const RunPlan* lower);

// Replays a run of both levels on symbols, independently of the lines and of check_placement().
// Returns what is wrong, or "".
std::string check_levels(const RunPlan& upper, const RunPlan& lower);

}  // namespace nn
