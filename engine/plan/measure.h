// Seconds that tasks take on this machine, for plans.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "engine/graph/cost.h"

namespace nn {

// Kinds of task (kernel, dtype, FLOPs, bytes) are measured once per process: kernels are called on
// zeros, on as many threads as there are workers, those with most of a program's work first, for at
// most a second or two. What is too large to be measured is scaled from a similar task of the same
// kernel, or takes the rates of the cost model, which are nominal where nothing was measured.
class TaskTimes {
public:
    void measure(const std::vector<Task>& tasks, size_t begin = 0);
    double seconds(const Task& task) const;

private:
    struct Key {
        const Kernel* kernel;
        Dtype dtype;
        float flops, bytes;
        auto operator<=>(const Key&) const = default;
    };
    static Key key_of(const Task& task);
    // A task of each kind, by the nominal seconds of all tasks of the kind.
    using Candidates = std::multimap<double, const Task*, std::greater<>>;
    Candidates candidates(const std::vector<Task>& tasks, size_t begin) const;
    double scaled(const Task& task) const;
    std::map<Key, double> measured_;
    Rates rates_;  // of each of all workers at once
};

// FLOP/s of f32 products of this size, one on every worker at once, as the cost model's benchmark
// measures them: on the GPUs where tasks run there, else on all CPU workers.
double product_rate(int64_t size);

}  // namespace nn
