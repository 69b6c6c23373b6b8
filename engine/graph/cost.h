// The cost model, which predicts the time of a task for submission, passes, simulation and plans. A
// kernel declares what bounds it; rates come from the machine's description, from measurements
// (workers/rates.h, plan/measure.h), or are nominal.
#pragma once
#include <vector>

#include "engine/machine/machine.h"

namespace nn {

struct Task;
struct TaskArg;

// The rates of an ordinary CPU core, for decisions that must not depend on measurements.
constexpr Rates nominal_rates = {1e11, 1e11, 1e11, 1e11, 1e10, 5e-6};

// On a CPU core, the larger of the times for arithmetic, at the rate of products, and for memory.
// Only products and attention come near the former rate. On a GPU, as in gpu_cost.h.
double seconds_of(const TaskArg& arg, const Rates& rates);
inline double nominal_seconds(const TaskArg& arg) { return seconds_of(arg, nominal_rates); }
std::vector<double> nominal_seconds(const std::vector<Task>& tasks);

}  // namespace nn
