// Where the tiles of a plan are below its level. Temporaries that are never there at the same time
// share space.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

struct StorePlaces {
    static constexpr uint32_t none = UINT32_MAX;
    std::vector<uint32_t> of_tile;  // by the tile's number in the lines
    std::vector<int64_t> bytes;     // of each place

    int64_t all_bytes() const;
};
// Below the lowest level.
StorePlaces store_places(const ProgramPlan& plan);
// Whether the places of this run, repeated, fit on the disk. True if there is another level above
// the disk.
bool fits_on_disk(const RunPlan& run, const PlanLimits& limits);
// By how many bytes the plan exceeds the room on the disk; 0 if it fits, or if levels below are
// still missing.
int64_t bytes_beyond_disk(const ProgramPlan& plan, const PlanLimits& limits);
// How often one of these functions found in this process that something does not fit.
size_t plans_beyond_disk();

}  // namespace nn
