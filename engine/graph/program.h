// A program: the tasks of a function, recorded once and replayed without Lua. Because the whole of
// it is known before it runs, passes (graph/passes/) find out when each temporary is last used,
// which tasks are on the critical path, and how many bytes a run takes.
#pragma once
#include <memory>
#include <vector>

#include "engine/graph/dependencies.h"
#include "engine/graph/task.h"
#include "engine/tile/tensor.h"

namespace nn {

struct ProgramInfo {
    int64_t tasks, tiles;
    double flops;
    int64_t persistent_bytes;  // of tiles that exist before and after a run
    int64_t peak_bytes;        // largest sum of live temporaries, in submission order
};

std::vector<TilePtr> tiles_of(const std::vector<Tensor>& tensors);

struct Program {
    explicit Program(uint32_t number) : number(number) {}
    Program(const Program&) = delete;
    ~Program();  // releases the scalars

    // --- what was recorded ---
    const uint32_t number;  // of the recording; the program's temporaries have it
    std::vector<Task> tasks;
    std::vector<Tensor> inputs, outputs;
    // What comes before makes the tensors that a step works on (weights, moments). Plans are about
    // the tasks from here on.
    size_t step_begin = 0;
    // A step may take its batch in microbatches, one after the other.
    struct Microbatch {
        size_t begin;  // its first task
        int tiles;     // into which its tokens are cut
    };
    std::vector<Microbatch> microbatches;
    struct ScalarStep {  // adds delta to the scalar when the task is submitted
        size_t before_task;
        int32_t scalar;
        double delta;
    };
    std::vector<ScalarStep> scalar_steps;
    uint64_t randoms = 0;       // random ops of a run
    void hold(int32_t scalar);  // which lives as long as the program

    // --- what the passes found ---
    std::vector<std::vector<TilePtr>> dies_after;  // per task: temporaries whose last use it is
    std::vector<TilePtr> die_at_end;  // temporaries that outputs are copied from, unused inputs
    std::vector<TilePtr> read_first;  // persistent tiles that must have a value before a run
    bool in_team = false;             // workers split single tasks among each other
    ProgramInfo info{};

    // Who accesses which tile, for passes. Found at the first call after the tasks have changed.
    const Accesses& accesses();
    void tasks_changed() { accesses_.reset(); }
    void keep_tasks(const std::vector<char>& kept);  // drops the others; one flag for each task

private:
    std::vector<int32_t> held_scalars_;
    std::unique_ptr<Accesses> accesses_;
};

}  // namespace nn
