// Levels of planned memory: for example slots on a GPU above slots in RAM, and the disk below both.
// The upper level is planned first. Its transfers are the tasks of the next one: a load reads a
// tile there, and a store writes one. So the same planner places any number of levels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/tiers/run_plan.h"

namespace nn {

// The transfers of a run of one level as a line. pace: the seconds of a run over those of its line,
// in which nothing waits. rates: of the transfers.
TaskLine lower_line(const RunPlan& upper, double pace, const TierRates& rates);

// The steps of the first levels of a run, or of all, in the order of their submission.
struct LevelStep {
    const Placement::Step* step;
    uint32_t level;       // 0: the uppermost
    uint32_t slot_below;  // of a transfer from or to another level: the tile's slot there
};
std::vector<LevelStep> merged_steps(const RunPlan& run, size_t levels);
inline std::vector<LevelStep> merged_steps(const RunPlan& run) {
    return merged_steps(run, run.levels());
}

// Replays a run of all levels on symbols, independently of the lines and of check_placement().
// Returns what is wrong, or "".
std::string check_levels(const RunPlan& run);

}  // namespace nn
