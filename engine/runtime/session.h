// The one StarPU session of the process.
#pragma once
#include <string>

#include "engine/graph/context.h"
#include "engine/machine/host.h"
#include "engine/profile/sums.h"

namespace nn {

struct SessionOptions {
    HostChoice host;
    std::string scheduler;     // empty: prio on CPUs, dmdas with GPUs
    int streams = 0;           // per GPU, each with a StarPU worker; 0: one
    bool cuda_graphs = false;  // of the kernels of a group (workers/gpu_graph.h)
};

void configure(const SessionOptions& options);  // before start(); an error afterwards
// Whether each value of a tile is checked where it is read (workers/tile_checks.h). chosen: 1, 0,
// or -1 for no change; an error after start(). Returns what was chosen before.
bool check_tiles(int chosen);
void start();       // idempotent; called by the first submission
void shutdown();    // waits for all tasks; idempotent; tiles lose their values
int cpu_workers();  // starts the session
int gpus();         // likewise
bool uses_cuda_graphs();
// Sets where tasks run from now on unless they specify it. Throws if no such worker exists.
void run_tasks_on(Where where);
void start_profile(int64_t limit = default_profile_limit);  // starts the session too
ProfileTotals session_totals();  // of all workers of the session; after stop_profile()

}  // namespace nn
