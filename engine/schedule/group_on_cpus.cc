#include "engine/schedule/group_on_cpus.h"

#include <algorithm>
#include <unordered_set>

#include "engine/graph/cost.h"
#include "engine/machine/ranks.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/residency/tier_settings.h"

namespace nn {

static int64_t bytes_of_temporaries(const Program& program) {
    std::unordered_set<const Tile*> seen;
    int64_t out = 0;
    const auto add = [&](const TilePtr& tile) {
        if (!tile->persists() && seen.insert(tile.get()).second)
            out += int64_t(arena_bytes(tile->bytes));
    };
    for (const Task& task : program.tasks)
        for (int i = 0; i < task.handles; ++i) add(task.tiles[i]);
    for (const TilePtr& tile : program.die_at_end) add(tile);
    return out;
}

bool can_group_on_cpus(const Program& program) {
    const bool has_parts = !program.loops.empty() || !program.microbatches.empty();
    return !has_parts && !program.in_team && !ranks().several() && !tiers().exist() &&
           bytes_of_temporaries(program) <= budget() / 16;
}

int lanes_of(const Program& program) {
    int out = 1;
    for (const Task& task : program.tasks) out = std::max(out, task.lane + 1);
    return out;
}

std::vector<TaskGroup> group_on_cpus(Program& program, int workers) {
    // By nominal rates. Longer groups leave workers idle at the end of a step: with 2 ms nothing
    // was gained in a step of 45 ms.
    constexpr double longest = 0.5e-3, parts_per_worker = 32;
    double seconds = 0;
    for (const Task& task : program.tasks) seconds += nominal_seconds(task.arg);
    GroupLimits limits{.device = Device::cpu};
    limits.seconds = std::min(longest, seconds / (parts_per_worker * workers));
    std::vector<TaskGroup> out = group_tasks(program, limits, 0);
    program.info.peak_bytes = bytes_of_temporaries(program), program.simulated_peak = 0;
    return out;
}

}  // namespace nn
