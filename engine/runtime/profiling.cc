#include "engine/runtime/profiling.h"

#include <starpu.h>

#include "engine/runtime/gpu.h"
#include "engine/runtime/session.h"
#include "engine/runtime/workers.h"

namespace nn {

void start_profile(int64_t limit) {
    start();
    anchor_gpu_times();
    enable_profile(true, limit);
}

ProfileTotals session_totals() {
    std::vector<WorkerTimes> workers;
    for (int w = 0; running() && w < int(starpu_worker_get_count()); ++w)
        workers.push_back({worker_name(w), gpu_of(w) >= 0});
    return profile_totals(std::move(workers), memory_nodes() > 1);
}

}  // namespace nn
