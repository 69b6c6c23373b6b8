// How long tasks take: the one cost model behind submission, passes, simulation and plans. A kernel
// declares what bounds it; rates come from the machine's description, from measurements
// (runtime/rates.h, plan/measure.h), or are nominal.
#pragma once
#include <vector>

#include "engine/graph/task.h"
#include "engine/machine/machine.h"

namespace nn {

// The rates of an ordinary CPU core: they order tasks where nothing was measured.
constexpr Rates nominal_rates = {1e11, 1e11, 1e11, 1e11, 1e10, 5e-6};

// What takes longer, arithmetic at the rate of products or memory. Kernels other than products and
// attention do not come near the former.
double seconds_of(const TaskArg& arg, const Rates& rates);
inline double nominal_seconds(const TaskArg& arg) { return seconds_of(arg, nominal_rates); }
std::vector<double> nominal_seconds(const std::vector<Task>& tasks);

}  // namespace nn
