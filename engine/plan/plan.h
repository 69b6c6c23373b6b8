// Predicts the seconds of a step on the described machine, and its memory by kind.
#pragma once
#include "engine/graph/program.h"
#include "engine/plan/measure.h"
#include "engine/plan/simulate.h"
#include "engine/tiers/plan.h"

namespace nn {

// The tasks of a program from Program::step_begin on, with their times, and so many iterations of
// each loop at most: more do not change the peak of the memory.
constexpr uint32_t simulated_iterations = 3;
SimulatedStep simulated_step(const Program& program, const TaskTimes& times,
                             uint32_t iterations = simulated_iterations);

// The source of task times: nominal rates, new measurements of this program, or earlier
// measurements. Rates in the machine's description replace all of these, and so do those of GPUs if
// they run the tasks.
enum class Times { nominal, measured, known };
std::vector<double> task_seconds(const Program& program, Times times);  // of each task
// The times for the placement in tiers: nominal, or measured if the step is long; then the disk is
// measured too.
std::vector<double> placement_seconds(const Program& program);
// The share of the seconds of a step's tasks that recomputation takes.
double share_recomputed(const Program& program, Times times);
SimulationResult plan(const Program& program, Times times, int steps = 3);

}  // namespace nn
