#include "engine/tiers/run_plan.h"

#include <vector>

namespace nn {

TilePlace RunPlan::place_of(uint32_t tile, Layout Placement::*ends) const {
    for (uint32_t i = 0; i < levels(); ++i)
        if (const uint32_t slot = (level(i).placement.*ends)[tile]; slot != no_slot)
            return {i, slot};
    return in_store;
}

RunPlan repeated(RunPlan run) {
    const Line& line = run.line.line;
    std::vector<char> changes(line.tiles.size(), 0);
    for (const auto& access : line.accesses.list)
        if (access.mode != Mode::read) changes[access.tile] = 1;
    std::erase_if(run.placement.steps, [&](const Placement::Step& step) {
        const bool is_needless = step.kind == Placement::store && !changes[step.index];
        if (is_needless) run.placement.stored -= line.bytes_of(step.index);
        return is_needless;
    });
    return run;
}

}  // namespace nn
