// The cost model as StarPU's schedulers ask for it (dmdas): rates measured when the engine starts,
// once for all CPU workers and on each GPU. For schedulers that ask for no times, the CPUs' default
// among them, nothing is measured.
#pragma once
#include "engine/machine/machine.h"

struct starpu_perfmodel;

namespace nn {

void start_rates();              // when StarPU runs; throws if a product fails
Rates rates_of(int worker);      // not known() where they were not measured
starpu_perfmodel* perf_model();  // for a codelet; nullptr where nobody asks

}  // namespace nn
