// A task: one kernel on a few tiles. Ops build tasks (graph/builder.h) and emit them into a sink
// (graph/sink.h), which records or submits them.
#pragma once
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

// What the worker gets: plain data, so that StarPU may free it.
struct TaskArg {
    const Kernel* kernel;
    const char* op;       // that emitted it, for errors and profiles
    const char* layer;    // the module that did: "blocks.3.mlp", or ""
    float flops, bytes;   // for the cost model and profiles
    int64_t fresh_bytes;  // of an eager task: bytes of the tiles that it writes anew
    bool in_place;        // the op changes an input, which keeps its value if the task is skipped
    bool in_team;         // idle workers split the kernel's loop (kernels/team.h)
    Dtype dtype;
    uint8_t operands;
    int8_t buffer_of[max_operands];  // operand -> StarPU buffer; -1 when absent
    int32_t tile, rank;              // which tile of the op's result, and its extents
    int32_t extent[max_dims];
    alignas(16) unsigned char params[max_params];
};

// A number in the params that is filled in at submission, not at recording.
struct Patch {
    enum Kind {
        scalar,     // a scalar's value
        random_key  // a seed, which is set, and the counter behind it, which moves on
    } kind;
    int32_t offset;  // in the params
    int32_t scalar_id;
};

struct Task {
    TaskArg arg;
    uint8_t handles = 0;
    TilePtr tiles[max_handles];  // distinct, with the accesses of all operands on each merged
    Mode modes[max_handles];
    int32_t priority = 0;
    std::vector<Patch> patches;
    Where where = Where::anywhere;
    bool splits = false;  // the kernel can split its loop among a team of workers

    bool writes(int i) const { return modes[i] != Mode::read; }
    // False where the task has max_handles tiles already.
    bool add_tile(const TilePtr& tile, Mode mode);
};

// Fills in the patches of a task that is submitted now. Random keys only where the task was
// recorded: an eager task was built with its own.
void apply_patches(const Task& task, TaskArg* arg, bool recorded);

// The name of a task in profiles: its op, or its kernel where no op emitted it.
inline const char* name_of(const TaskArg& arg) {
    return std::strcmp(arg.op, "task") == 0 ? arg.kernel->name.c_str() : arg.op;
}
// "gemm, f32, tile 3 of shape (512,768)": for messages about a task.
std::string description_of(const Kernel& kernel, Dtype dtype, int32_t tile, const Dims& extent);

}  // namespace nn
