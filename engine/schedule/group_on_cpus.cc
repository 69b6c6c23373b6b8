#include "engine/schedule/group_on_cpus.h"

#include <algorithm>

#include "engine/graph/cost.h"
#include "engine/machine/ranks.h"
#include "engine/memory/admission.h"
#include "engine/residency/tier_settings.h"

namespace nn {

bool can_group_on_cpus(const Program& program) {
    const bool has_parts = !program.loops.empty() || !program.microbatches.empty();
    return !has_parts && !program.in_team && !ranks().several() && !tiers().exist() &&
           program.info.temporary_bytes <= budget() / 16;
}

std::vector<TaskGroup> group_on_cpus(Program& program, int workers) {
    // By nominal rates. Longer groups leave workers idle at the end of a step.
    constexpr double longest = 0.5e-3, parts_per_worker = 32;
    double seconds = 0;
    int lanes = 1;
    for (const Task& task : program.tasks) {
        seconds += nominal_seconds(task.arg);
        lanes = std::max(lanes, task.lane + 1);
    }
    if (lanes < workers) return {};
    GroupLimits limits{.device = Device::cpu, .tasks = 64, .tiles = 100};  // of short tasks
    limits.seconds = std::min(longest, seconds / (parts_per_worker * workers));
    std::vector<TaskGroup> out = group_tasks(program, limits, 0);
    if (out.size() == program.tasks.size()) out.clear();
    return out;
}

void forget_places(Program& program) {
    for (Task& task : program.tasks) task.gpu = -1, task.lane = 0;
}

}  // namespace nn
