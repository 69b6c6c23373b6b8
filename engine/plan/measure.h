// Measures the times of tasks on this machine, for plans.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/graph/cost.h"

namespace nn {

// Measures each kind of task (kernel, dtype, FLOPs, bytes) once: calls the kernel on zeros, on as
// many threads as there are workers. Kinds with most of a program's work come first, for at most a
// second or two; those for which no time is left are not measured later either, so that a program
// keeps its times. The time of a larger task is scaled from a similar task of the same kernel, or
// comes from the cost model, with nominal rates if nothing was measured.
//
// Later processes use the same times (base/kept_numbers.h), unless products are faster then:
// something else used the cores during the measurements.
class TaskTimes {
public:
    void measure(const std::vector<Task>& tasks);
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
    Candidates candidates(const std::vector<Task>& tasks) const;
    void recall(Candidates& kinds);
    static std::string name_of(const Key& key);
    void set(const Key& key, double seconds);  // 0: left out
    double scaled(const Task& task) const;
    std::map<Key, double> measured_;
    std::set<Key> left_out_;
    Rates rates_;  // of one worker while all are busy
};

// The GPUs that run a plan's tasks. None if tiles move between RAM and a disk only: CPU workers
// compute then.
int planned_gpus();
int planned_workers();         // those GPUs, else all CPU workers
bool gpu_rates_are_assumed();  // because the machine is described without them

// FLOP/s of f32 or bf16 products of this size, one on every CPU worker at once; of GPUs, if tasks
// run there, as measured when the engine started.
double product_rate(int64_t size, Dtype dtype);

}  // namespace nn
