// How long tasks take, for schedulers that choose a worker by it (dmdas): from FLOPs and bytes,
// with rates measured when the engine starts: once for all CPU workers, on each GPU. Schedulers
// that ask for no times, the CPUs' default among them, measure nothing.
#pragma once
#include "engine/task.h"

struct starpu_perfmodel;

namespace nn {

// FLOP/s of products by dtype, bytes/s of a copy (read and written), seconds before a task begins.
struct Rates {
    double f32 = 0, f64 = 0, bf16 = 0, tf32 = 0, bytes = 0, start = 0;
};
// What takes longer, arithmetic or memory. All FLOPs count at the rate of products, which only
// those of products and attention reach; for the others bytes decide.
double seconds_of(const TaskArg& arg, const Rates& rates);

void start_costs();              // when StarPU runs; throws where a product fails
Rates rates_of(int worker);      // zeros where they were not measured
starpu_perfmodel* cost_model();  // for a codelet; nullptr where nobody asks

}  // namespace nn
