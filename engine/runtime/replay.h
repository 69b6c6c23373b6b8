// Runs a recorded program: one thread submits its tasks from C++, without Lua or new handles.
#pragma once
#include <memory>
#include <vector>

#include "engine/graph/program.h"

namespace nn {

class Replay {
public:
    explicit Replay(std::shared_ptr<Program> program) : program_(std::move(program)) {}
    ~Replay();  // waits for its tasks; a hang or a signal ends the wait
    Replay(const Replay&) = delete;

    const Program& program() const { return *program_; }
    // Copies the inputs, submits all tasks, and returns copies of the outputs. Waits only to keep
    // at most one earlier run in flight.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs);

private:
    void check(const std::vector<Tensor>& inputs) const;
    void submit_tasks();

    const std::shared_ptr<Program> program_;
    bool submitted_ = false;
};

}  // namespace nn
