// The order in which the tasks of a program run if its memory is planned. Every order that respects
// the dependencies gives the same results; this one uses each weight as rarely as possible: a layer
// serves all microbatches in a row, and a gradient is reduced and applied as soon as it is
// complete.
#pragma once
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "engine/graph/program.h"

namespace nn {

struct TaskOrder {
    // All tasks; or those before the loop of a program that has one (Program::loops), those of an
    // iteration, and those after the loop.
    std::vector<uint32_t> body, iteration, tail;
    // Updates that run between the first tasks of the next run, because nothing else in this run
    // depends on them: all that need all gradients, such as those after clipping; or the last ones,
    // to divide transfers more evenly.
    std::vector<uint32_t> deferred;
};

// The accesses of the tasks, without the gates of microbatches, which would enforce another order
// (graph/passes/order_microbatches.cc). Tasks of one iteration have none.
Accesses accesses_without_gates(const Program& program);

struct OrderChoice {
    bool by_layer =
        false;  // a layer serves all microbatches in a row; else one runs after the other
    double late_updates = 0;  // share of the updates, by bytes, that run in the next run
};
TaskOrder order_tasks(const Program& program, const Accesses& accesses, const OrderChoice& choice);

// The body of a run that begins with the deferred tasks of the run before: each of them as late as
// possible, so before the first task of the body that depends on it.
std::vector<uint32_t> merge_deferred(const TaskOrder& order, const Accesses& accesses);

}  // namespace nn
