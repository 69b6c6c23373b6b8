// A program: the tasks of a function, recorded once and replayed without Lua. All tasks are known
// in advance, so passes (graph/passes/) find the last use of each temporary, the critical path, and
// the bytes of a run.
#pragma once
#include <algorithm>
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
    int64_t planned_bytes;     // the memory of those that exist only in a plan
    int64_t peak_bytes;        // largest sum of live temporaries, in submission order
    int64_t temporary_bytes;   // the sum of all temporaries, which no order exceeds
};

std::vector<TilePtr> tiles_of(const std::vector<Tensor>& tensors);

struct Program {
    explicit Program(uint32_t number) : number(number) {}
    Program(const Program&) = delete;
    ~Program();  // releases the scalars

    // --- set by the recording ---
    const uint32_t number;  // of the recording; also stored in the program's temporaries
    std::vector<Task> tasks;
    std::vector<Tensor> inputs, outputs;
    // A plan (begin_planned_step()) never runs. `lasting`: the tensors that would exist before and
    // after a run of it, whether its tasks use them or not.
    bool is_plan = false;
    std::vector<Tensor> lasting;
    // A step may split its batch into microbatches, which run in order.
    struct Microbatch {
        size_t begin;  // its first task
        int tiles;     // of its tokens
    };
    std::vector<Microbatch> microbatches;
    // Tasks [begin, end), the body of a loop, run several times in a row. All iterations use the
    // same tiles. They differ only in the tasks that have a Task::iteration, which read other rows
    // of the batch, and in their random keys. Loops follow each other.
    struct Loop {
        size_t begin, end;
        uint32_t iterations;
        uint64_t randoms;  // random ops of an iteration
        // Set by passes: temporaries from before the loop that it uses last, and how much the
        // priority of a task is lower in each iteration than in the one before.
        std::vector<TilePtr> dies_after{};
        int32_t priority_step = 0;
    };
    std::vector<Loop> loops;
    struct Backward {  // the tasks of a call of backward()
        size_t begin, end;
    };
    std::vector<Backward> backwards;
    struct ScalarStep {  // adds delta to the scalar when the task is submitted
        size_t before_task;
        int32_t scalar;
        double delta;
    };
    std::vector<ScalarStep> scalar_steps;
    // The step splits its batch into so many shards, which different ranks can compute; 0: it does
    // not. Task::shard is from 0.
    int shards = 0;
    uint64_t randoms = 0;       // random ops of a run
    void hold(int32_t scalar);  // keeps the scalar as long as the program

    // --- set by the passes ---
    int64_t recomputed_bytes = 0;  // of activations that are not kept, in all iterations
    std::vector<std::vector<TilePtr>> dies_after;  // per task: temporaries that it uses last
    std::vector<TilePtr> die_at_end;  // temporaries from which outputs are copied, unused inputs
    std::vector<TilePtr> read_first;  // persistent tiles that must have a value before a run
    bool in_team = false;             // workers share the loops of single tasks
    // The peak of temporaries in a simulation, where priorities keep it below info.peak_bytes; 0:
    // not known.
    int64_t simulated_peak = 0;
    std::shared_ptr<Program> whole;  // of a plan for several ranks: before it became one's part
    // Persistent tiles whose values only other ranks keep.
    std::vector<TilePtr> kept_elsewhere;
    // Set on ranks with memory tiers. Plans keep the order of the tasks, which is the same on all
    // ranks, so that no two ranks wait for each other's transfers.
    bool order_is_fixed = false;
    std::vector<double> seconds;  // of each task, for its placement in tiers; empty: nominal
    ProgramInfo info{};

    // The accesses to tiles, for passes; derived at the first call after the tasks changed.
    const Accesses& accesses();
    void tasks_changed() { accesses_.reset(); }
    void keep_tasks(const std::vector<char>& kept);  // drops the others; one flag for each task
    // Puts the tasks in this order, of their numbers, which respects all dependencies. Returns
    // false, and changes nothing, if a task would get another value of a scalar.
    bool reorder(const std::vector<uint32_t>& order);

private:
    std::vector<int32_t> held_scalars_;
    std::unique_ptr<Accesses> accesses_;
};

// A copy of a program to try passes on.
std::unique_ptr<Program> trial_of(const Program& program);

// How much lower the priorities of tasks are in this iteration than in the first one; 0 without a
// loop.
inline int32_t later_priority(const Program::Loop* loop, uint32_t iteration) {
    return loop ? int32_t(iteration) * loop->priority_step : 0;
}

// Calls visit(task, iteration, loop) for the tasks of a run in their order; loop: nullptr outside
// of loops. most: of the iterations of each loop.
template <class Visit>
void for_each_run(const Program& program, Visit visit, uint32_t most = UINT32_MAX) {
    size_t t = 0;
    for (const Program::Loop& loop : program.loops) {
        for (; t < loop.begin; ++t) visit(t, 0u, static_cast<const Program::Loop*>(nullptr));
        for (uint32_t i = 0; i < std::min(loop.iterations, most); ++i)
            for (t = loop.begin; t < loop.end; ++t)
                if (const int32_t only = program.tasks[t].iteration; only < 0 || only == int32_t(i))
                    visit(t, i, &loop);
        t = loop.end;
    }
    for (; t < program.tasks.size(); ++t) visit(t, 0u, static_cast<const Program::Loop*>(nullptr));
}

}  // namespace nn
