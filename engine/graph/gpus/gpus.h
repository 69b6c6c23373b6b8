// Prepares a recorded program for the GPUs that will run it, before its first run, and groups tasks
// for GPUs and CPUs. Recording and its passes know nothing of this, so a program is the same for
// any number of devices, and so are its results: nothing here changes what is computed, or in which
// order a tile's value is accumulated.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "engine/graph/program.h"
#include "kernels/kernel.h"

namespace nn {

// Sets Task::gpu and Task::lane. The tasks of a tile of tokens run on one GPU, and the tiles are
// divided evenly. Each parameter has one owner, which keeps its moments and updates it; owners have
// equal bytes as far as possible. Tasks that neither belong to tokens nor to an owner run beside
// what they read.
void place_on_gpus(Program& program, int gpus);

// Moves the tasks that only add to what several tiles of tokens share, such as the gradients of
// weights, behind the other tasks of their layer.
void delay_sums(Program& program);

// Lets a temporary take the memory of an earlier one, of the same size on the same GPU, that is not
// used any more: it becomes the same tile. So the memory need not be freed and allocated again in
// between. The peak does not grow. Call find_lifetimes() afterwards.
void share_memory(Program& program);

// Tasks that are submitted as one: they run on one GPU, one after the other on its stream, or one
// after the other on a CPU worker.
struct TaskGroup {
    std::vector<uint32_t> tasks;  // in order
    int16_t gpu = -1, lane = 0;   // gpu -1: not on a GPU
    std::vector<TilePtr> tiles;   // of all of them, once each
    std::vector<Mode> modes;      // as the group uses them
    std::vector<TaskArg> args;    // of each task, with buffers numbered in `tiles`
    TaskArg all;                  // for messages and profiles: the first, with the sums of all
    std::vector<TilePtr> dies_after;
    std::shared_ptr<GpuGraph> graph;  // of its kernels, for sessions with CUDA graphs
};
// Of a group of several tasks.
struct GroupLimits {
    Device device = Device::cuda;                              // that has all of its kernels
    int tasks = max_group, tiles = max_group_tiles;            // at most these
    int64_t bytes = std::numeric_limits<int64_t>::max();       // of its tiles
    double seconds = std::numeric_limits<double>::infinity();  // of its tasks, by nominal rates
};
// Groups in an order of submission that respects all dependencies, of a program after
// place_on_gpus(). A task that cannot run on the device is a group of its own. kept: bytes of
// temporaries, the smallest ones, that keep their memory between runs instead of dying, because
// StarPU runs two tasks to free the memory of one.
std::vector<TaskGroup> group_tasks(Program& program, const GroupLimits& limits, int64_t kept);
// The most bytes that the groups need on one GPU, in a later run than the first, if the tiles of a
// group are allocated while the one before still runs.
int64_t peak_on_a_gpu(const std::vector<TaskGroup>& groups);

}  // namespace nn
