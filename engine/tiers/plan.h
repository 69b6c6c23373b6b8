// The plans of a program that needs more memory than there is: its lines with their placements, all
// checked. Nothing here runs or allocates anything.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "engine/tiers/line.h"
#include "engine/tiers/predict.h"

namespace nn {

struct PlanLimits {
    int64_t memory = 0;    // bytes for tiles
    int64_t reserved = 0;  // of these, for everything but the program
    TierRates rates;
    int64_t rest = 0;  // bytes for small tiles, inputs and outputs; 0: they are in `memory` too
    const char *tier = "RAM", *setting = "memory.ram";  // for errors
};

// first: of the first run; next: of a run that begins with the deferred tasks of the run before;
// last: of these deferred tasks alone. next and last are empty if no tasks are deferred.
struct ProgramPlan {
    std::unique_ptr<ProgramLines> lines;
    uint32_t blocks = 0;  // of the memory of the slots
    RunPlan first, next, last;
    int64_t least_moved = 0;  // bytes of a run, by any placement

    const RunPlan& steady() const { return lines->has_deferred() ? next : first; }
};
Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const TierRates& rates);

// Chooses the order of the tasks, the slots and the transfers with which a run takes the least
// time. seconds: of each task. Throws OutOfMemory with the smallest sufficient number of bytes of
// memory.
ProgramPlan plan_program(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits);

// The same with memory for slots that exists, for a program that uses tiles of another one.
// slot_of: the first block of a persistent tile's slot now, or no_slot. Returns a plan without
// lines if the memory does not suffice.
ProgramPlan plan_in_slots(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, uint32_t blocks,
                          const std::vector<const Tile*>& others,
                          const std::function<uint32_t(const Tile&)>& slot_of);

}  // namespace nn
