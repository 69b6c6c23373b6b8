// The step that a simulation needs (plan/simulate.h), from programs.
#pragma once
#include <vector>

#include "engine/graph/program.h"
#include "engine/plan/measure.h"
#include "engine/plan/simulate.h"

namespace nn {

// One program or, if ranks run different parts of one, the part of each rank.
using Parts = std::vector<const Program*>;

// The tasks of a program with their times, and so many iterations of each loop at most: more do not
// change the peak of the memory. A send of one part and the receive of another one become one task.
constexpr uint32_t simulated_iterations = 3;
SimulatedStep simulated_step(const Parts& parts, const TaskTimes& times,
                             uint32_t iterations = simulated_iterations);

}  // namespace nn
