// What a step would take, before it runs: the program's tasks are played on imaginary workers in
// the order in which StarPU's scheduler `prio` would start them, and memory is counted as the arena
// would hand it out. Nothing is computed and nothing of the program's size is allocated.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/task.h"

namespace nn {

class Program;

// What a tile holds, where somebody said so (nn_kind): who needs memory.
enum TileKind : uint8_t { other_kind, weights, gradients, optimizer_state, activations, cache };
constexpr int tile_kinds = 6;

// The tasks of a step as a simulation needs them. A task uses uses[begin] to uses[end - 1].
struct PlanGraph {
    struct Use {
        uint32_t tile;
        Mode mode;
    };
    struct Node {
        double seconds;
        int32_t priority;
        uint32_t begin, end;
    };
    struct Block {
        int64_t bytes;  // as the arena rounds them
        TileKind kind;
        bool persists;  // allocated before, between and after steps
    };
    std::vector<Node> nodes;
    std::vector<Use> uses;
    std::vector<Block> blocks;
};

struct PlanResult {
    double seconds = 0;             // of one step among others
    double busy = 0;                // seconds that the workers compute in a step, summed over them
    int64_t peak = 0, lasting = 0;  // bytes: at most, and between steps
    int64_t by_kind[tile_kinds] = {};  // of `peak`
};

// Plays the graph `steps` times in a row, as replays follow each other: at most one earlier one is
// in flight. A free worker starts the ready task of the highest priority; among equals the one that
// was ready first. submission: seconds to submit a task.
PlanResult simulate(const PlanGraph& graph, int workers, int steps = 3, double submission = 0);

// Seconds that tasks take on this machine. Kinds of task (kernel, dtype, FLOPs, bytes) are measured
// once in a process, on as many threads as there are workers, with zeros for data: those with most
// of a program's work first, for at most a second or so. What is too large to be measured is scaled
// from a smaller one of its kernel, or from a product and a sum of fixed size.
class TaskTimes {
public:
    void measure(const std::vector<const Task*>& tasks, int workers);
    double seconds(const Task& task) const;  // of a task alone, not measured: a guess

private:
    using Key = std::pair<const Kernel*, std::pair<int, std::pair<float, float>>>;
    static Key key_of(const Task& task);
    std::vector<const Task*> candidates(const std::vector<const Task*>& tasks) const;
    std::map<Key, double> measured_;
    double flops_per_second_[dtype_count] = {}, bytes_per_second_ = 0;
};
TaskTimes& task_times();  // of this process

// Microseconds: a guess at a core's time, which orders tasks where nothing was measured. FLOPs at
// 100 GFLOP/s, bytes at 10 GB/s, 5 us a task.
double guessed_time(const TaskArg& arg);

// The part of a program from Program::begin_step on.
PlanGraph plan_graph(const Program& program, const TaskTimes& times);
enum class Times { guessed, measured, known };  // known: with what is measured already
PlanResult plan(const Program& program, Times times, int steps = 3);

}  // namespace nn
