// The urgency of the tasks of a step that several ranks run.
#pragma once
#include <vector>

#include "engine/graph/program.h"

namespace nn {

// The length in seconds of the longest path from each task to the end of the next run, because a
// step ends with updates of weights for which the next step waits.
std::vector<float> urgencies(Program& program);

}  // namespace nn
