// Predicts the seconds of a step on the described machine, and its memory by kind.
#pragma once
#include "engine/graph/program.h"
#include "engine/plan/measure.h"
#include "engine/plan/simulated_step.h"
#include "engine/tiers/plan.h"

namespace nn {

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
// The results of each rank.
std::vector<SimulationResult> plan(const Parts& parts, Times times, int steps = 3);

}  // namespace nn
