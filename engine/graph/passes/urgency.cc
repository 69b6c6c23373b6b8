#include "engine/graph/passes/urgency.h"

#include <algorithm>

#include "engine/graph/cost.h"

namespace nn {

std::vector<float> urgencies(Program& program) {
    std::vector<double> seconds = nominal_seconds(program.tasks);
    const size_t tasks = seconds.size();
    seconds.resize(2 * tasks);
    std::copy_n(seconds.begin(), tasks, seconds.begin() + std::ptrdiff_t(tasks));
    const std::vector<double> path = paths_to_end(predecessors(program.accesses(), 2), seconds);
    return {path.begin(), path.begin() + std::ptrdiff_t(tasks)};
}

}  // namespace nn
