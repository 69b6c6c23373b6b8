#include "engine/schedule/needs_plan.h"

#include <algorithm>

#include "engine/residency/homes.h"

namespace nn {

// Whether the program fits into a level without a plan.
static bool fits(const TierLevel& level, const Program& program) {
    if (level.kind == NodeKind::ram) return ram_without_plan(program) <= level.bytes;
    // Tiles outside slots take the rest of the GPU's memory.
    const int64_t most = std::min(level.bytes, rest_of_gpu());
    return program.info.persistent_bytes + program.info.peak_bytes <= most;
}

bool uses_homes(Program& program) {
    const auto& used = program.accesses().numbers;
    return std::ranges::any_of(homes(),
                               [&](const HomeOf& home) { return used.count(home.tile) > 0; });
}

bool needs_plan(Program& program) {
    if (!tiers().exist()) return false;
    const auto& levels = tiers().levels;
    const bool fits_all =
        std::ranges::all_of(levels, [&](const TierLevel& level) { return fits(level, program); });
    // Tiles that eager tasks moved to the disk come back if all fit.
    if (fits_all && !slots_exist() && !tiers().on_gpu()) return false;
    return !fits_all || uses_homes(program);
}

}  // namespace nn
