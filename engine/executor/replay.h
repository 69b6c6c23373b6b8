// Runs a recorded program: one thread submits its tasks from C++, without Lua or new handles.
#pragma once
#include <memory>
#include <vector>

#include "engine/executor/planned.h"
#include "engine/graph/gpus/gpus.h"
#include "engine/graph/program.h"
#include "engine/schedule/needs_plan.h"

namespace nn {

class Replay {
public:
    explicit Replay(std::shared_ptr<Program> program) : program_(std::move(program)) {}
    ~Replay();  // waits for its tasks, also deferred ones; a hang or a signal ends the wait
    Replay(const Replay&) = delete;

    const Program& program() const { return *program_; }
    bool needs_plan() const { return nn::needs_plan(*program_); }
    // Copies the inputs, submits all tasks, and returns copies of the outputs. Waits only to keep
    // at most one earlier run in flight.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs);

private:
    void check(const std::vector<Tensor>& inputs) const;
    void submit_tasks();
    void make_groups();
    bool uses_groups() const;
    void check_memory_of_gpus() const;
    void submit_unplanned();
    void submit_groups();
    void submit_planned();

    const std::shared_ptr<Program> program_;
    bool submitted_ = false;
    std::unique_ptr<PlannedRun> planned_;  // if the program does not fit into RAM
    std::vector<TaskGroup> groups_;        // on GPUs, and of short tasks on CPUs
    int gpus_ = 0, cpus_ = 0;              // for which the groups were made
    int64_t peak_on_a_gpu_ = 0;            // of the groups
};

}  // namespace nn
