#include "engine/schedule/needs_plan.h"

#include <algorithm>

#include "engine/runtime/homes.h"

namespace nn {

bool needs_plan(Program& program) {
    if (!tiers().exist()) return false;
    // Tiles that eager tasks moved to the disk come back if all fit.
    const bool fits = ram_without_plan(program) <= tiers().ram;
    if (fits && !slots_exist() && tiers().gpu == 0) return false;
    for (const HomeOf& home : homes())
        if (program.accesses().numbers.count(home.tile)) return true;
    if (tiers().gpu > 0) {  // tiles outside slots take the rest of the GPU's memory
        const int64_t most = std::min(tiers().gpu, rest_of_gpu());
        if (program.info.persistent_bytes + program.info.peak_bytes > most) return true;
        if (!tiers().are_three()) return false;
    }
    return !fits;
}

}  // namespace nn
