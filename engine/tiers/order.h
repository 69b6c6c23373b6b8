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
    std::vector<uint32_t> body;
    // Updates at the end of a run that need all gradients, such as those after clipping. Nothing
    // else in the run depends on them, so they may run between the first tasks of the next run.
    std::vector<uint32_t> deferred;
};

// The tiles of tasks before the step, which persist although they belong to the recording.
std::unordered_set<const Tile*> made_before(const Program& program);
// The accesses of the step's tasks, without the gates of microbatches, which would enforce another
// order (graph/passes/order_microbatches.cc). Earlier tasks have none.
Accesses accesses_without_gates(const Program& program);

// by_layer: a layer serves all microbatches in a row; else microbatches run one after the other.
TaskOrder order_tasks(const Program& program, const Accesses& accesses, bool by_layer);

// The tasks of a run that begins with the deferred tasks of the run before: each of them as late as
// possible, so before the first task of the body that depends on it.
std::vector<uint32_t> merge_deferred(const TaskOrder& order, const Accesses& accesses);

}  // namespace nn
