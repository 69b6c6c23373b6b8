// The time of a kernel on a GPU, for the cost model (cost.h): how far kernels stay below the rates
// of large products and copies. docs/cuda.md lists the assumptions, and what they were measured on.
#pragma once
#include "engine/machine/machine.h"

namespace nn {

struct TaskArg;

double gpu_seconds_of(const TaskArg& arg, const Rates& rates);

}  // namespace nn
