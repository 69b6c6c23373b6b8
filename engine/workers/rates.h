// The cost model for StarPU's schedulers (dmdas), with rates that are measured when the engine
// starts: once for all CPU workers, and on each GPU. Schedulers that use no times, such as the
// default on CPUs, need no measurements.
#pragma once
#include <functional>
#include <vector>

#include "engine/graph/task.h"
#include "engine/machine/machine.h"

struct starpu_perfmodel;

namespace nn {

void start_rates();          // after StarPU starts; throws if a product fails
Rates rates_of(int worker);  // not known() if they were not measured
// For codelets of single tasks and of groups; nullptr if the scheduler uses no times.
starpu_perfmodel* perf_model();
starpu_perfmodel* perf_model_of_groups();

// One call of a kernel on operands of these sizes (0: absent). All measurements of rates, on one
// core, on all cores or on a GPU, use the same calls.
struct BenchmarkCall {
    const Kernel* kernel;
    Dtype dtype;
    std::vector<size_t> operand_bytes;
    alignas(16) unsigned char params[max_params];
    double flops, bytes;  // bytes: read and written
};
BenchmarkCall benchmark_product(int64_t size, Dtype dtype, bool tf32);  // of square matrices

// Seconds of one call; <= 0 or an exception if it fails.
using BenchmarkRunner = std::function<double(const BenchmarkCall&)>;
// product_size: of square matrices; copy_bytes: of a copy. tf32: whether TF32 has its own rate.
// Not known() if a call fails.
Rates measured_rates(const BenchmarkRunner& run, int64_t product_size, int64_t copy_bytes,
                     bool tf32);

}  // namespace nn
