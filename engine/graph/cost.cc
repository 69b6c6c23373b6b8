#include "engine/graph/cost.h"

#include <algorithm>

namespace nn {

double seconds_of(const TaskArg& arg, const Rates& rates) {
    const double memory = double(arg.bytes) / rates.bytes;
    if (arg.kernel->bound != Bound::products) return rates.start + memory;
    int32_t tf32 = 0;
    if (arg.dtype == Dtype::f32 && arg.kernel->tf32_offset >= 0)
        std::memcpy(&tf32, arg.params + arg.kernel->tf32_offset, sizeof tf32);
    const double products = double(arg.flops) / (tf32 ? rates.tf32 : rates.products(arg.dtype));
    return rates.start + std::max(products, memory);
}

std::vector<double> nominal_seconds(const std::vector<Task>& tasks) {
    std::vector<double> out;
    for (const Task& task : tasks) out.push_back(nominal_seconds(task.arg));
    return out;
}

}  // namespace nn
