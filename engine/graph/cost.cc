#include "engine/graph/cost.h"

#include <algorithm>

#include "engine/graph/gpu_cost.h"
#include "engine/graph/task.h"

namespace nn {

double seconds_of(const TaskArg& arg, const Rates& rates) {
    if (rates.multiprocessors > 0) return gpu_seconds_of(arg, rates);
    const double memory = double(arg.bytes) / rates.bytes;
    if (arg.kernel->bound != Bound::products) return rates.start + memory;
    const bool tf32 = arg.dtype == Dtype::f32 && arg.kernel->allows_tf32(arg.params);
    const double products = double(arg.flops) / (tf32 ? rates.tf32 : rates.products(arg.dtype));
    return rates.start + std::max(products, memory);
}

std::vector<double> nominal_seconds(const std::vector<Task>& tasks) {
    std::vector<double> out;
    for (const Task& task : tasks) out.push_back(nominal_seconds(task.arg));
    return out;
}

}  // namespace nn
