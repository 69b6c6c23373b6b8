// A task: one kernel on a few tiles. Ops build tasks (graph/builder.h) and emit them into a sink
// (graph/sink.h), which records or submits them.
#pragma once
#include <array>
#include <cstring>
#include <vector>

#include "engine/graph/context.h"
#include "engine/tile/shape.h"
#include "engine/tile/tile.h"
#include "kernels/kernel.h"

namespace nn {

constexpr int max_handles = 16;                // StarPU is built with --enable-maxbuffers=16
constexpr int max_operands = max_handles - 1;  // one handle stays free for a microbatch's gate
constexpr size_t max_params = 384;

// The task's description for the worker: plain data, so that StarPU can free it.
struct TaskArg {
    const Kernel* kernel;
    const char* op;       // that emitted the task; for errors and profiles
    const char* layer;    // that emitted the task: "blocks.3.mlp", or ""
    float flops, bytes;   // for the cost model and profiles
    int64_t fresh_bytes;  // of an eager task: bytes of the tiles that it allocates
    bool in_place;        // the op changes an input, which keeps its value if the task is skipped
    bool in_team;         // idle workers share the kernel's loop (kernels/team.h)
    Dtype dtype;
    uint8_t operands;
    int16_t buffer_of[max_operands];  // operand -> StarPU buffer; -1 if absent
    int32_t tile, rank;               // number of the tile in the op's result, and its extents
    int32_t extent[max_dims];
    alignas(16) unsigned char params[max_params];
};

// A copy of the task's parameters, which are a P.
template <class P> P params_of(const TaskArg& arg) {
    P out;
    std::memcpy(&out, arg.params, sizeof out);
    return out;
}

// Where a task's operands are in memory; nullptr if absent.
using Operands = std::array<void*, max_operands>;

class GpuGraph;  // workers/gpu_graph.h

// Several tasks that run in order as one, with the buffers of all of them.
constexpr int max_group = 256, max_group_tiles = 1000;
struct GroupArg {
    TaskArg all;  // for messages and profiles
    int count;
    const TaskArg* const* args;
    GpuGraph* graph;  // of the group's kernels; nullptr if they start one by one
};

// A number in the params that is set at submission, not at recording.
struct Patch {
    enum Kind {
        scalar,     // a scalar's value
        random_key  // a seed, which is set, and the counter after it, which is incremented
    } kind;
    int32_t offset;  // in the params
    int32_t scalar_id;
};

struct Task {
    TaskArg arg;
    uint8_t handles = 0;
    uint8_t gates = 0;           // how many of them, the last ones, are gates of microbatches
    TilePtr tiles[max_handles];  // distinct; the access modes of operands on one tile are merged
    Mode modes[max_handles];
    int32_t priority = 0;
    std::vector<Patch> patches;
    Where where = Where::anywhere;
    bool repeats = false;         // an earlier task, to recompute its results
    bool is_last_choice = false;  // a worker that has another ready task takes that one
    bool splits = false;          // a team of workers can share the kernel's loop
    int16_t gpu = -1;             // that runs it, from 0; -1: any (engine/graph/gpus)
    int16_t lane = 0;             // the number of its tile of tokens
    bool is_sum = false;          // it only adds to what several lanes share
    int32_t shard = -1;           // of the batch (Program::shards); -1: of none
    int32_t iteration = -1;       // of its loop (Program::loops) in which it runs; -1: in all
    // With several ranks, a transfer moves the value of tiles[0]; its kernel only has a name
    // (passes/distribute.h). A receive with a second tile waits until that is computed.
    enum class Transfer : uint8_t { none, send, receive } transfer = Transfer::none;
    int32_t peer = -1;  // the rank at the other end
    int64_t tag = 0;    // the same at both ends
    float urgency = 0;  // with several ranks: seconds (passes/urgency.h)

    bool writes(int i) const { return modes[i] != Mode::read; }
    bool is_transfer() const { return transfer != Transfer::none; }  // between ranks
    // Returns false if the task already has max_handles tiles.
    bool add_tile(const TilePtr& tile, Mode mode);
};

// Applies the patches of a recorded task at submission. earlier_randoms: random ops of the earlier
// iterations of its loop.
void apply_patches(const Task& task, TaskArg* arg, uint64_t earlier_randoms);
// The same for an eager task, which is built with its final random key.
void apply_scalar_patches(const Task& task, TaskArg* arg);
// Adds a number to the counter of each random key in a task's parameters.
void shift_random_keys(const Task& task, TaskArg* arg, uint64_t randoms);

// The name of a task in profiles: its op, or its kernel if no op emitted it.
inline const char* name_of(const TaskArg& arg) {
    return std::strcmp(arg.op, "task") == 0 ? arg.kernel->name.c_str() : arg.op;
}
// "gemm, f32, tile 3 of shape (512,768)": for messages about a task.
std::string description_of(const Kernel& kernel, Dtype dtype, int32_t tile, const Dims& extent);

}  // namespace nn
