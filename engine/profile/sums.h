// What the records of a profile show: sums by kernel, op and layer, which tasks waited for which,
// and what the workers did at every moment. After stop_profile(), unless a comment says otherwise.
#pragma once
#include <string>
#include <vector>

#include "engine/graph/dependencies.h"
#include "engine/profile/records.h"

namespace nn {

struct WorkerTimes {
    std::string name;  // "CPU 0", "GPU 1"
    bool gpu;
    int64_t tasks = 0;
    // Seconds. A worker is busy, or it waits: for data of its next task to be copied; since what
    // was submitted depends on tasks that still run; since nothing was submitted; or for the
    // engine, which has a task that is ready.
    double busy = 0, data = 0, dependencies = 0, nothing = 0, engine = 0;
};
struct ProfileTotals {
    double seconds;
    int64_t tasks, lost;               // lost: after the limit
    std::vector<WorkerTimes> workers;  // by StarPU's number
};
struct KernelStat {
    int64_t calls;
    double seconds, flops, bytes;
};
struct ProfileGroup {
    const char* name;
    KernelStat stat;
};
enum class GroupBy { kernel, op, layer };

// copies: whether there are several memory nodes, so that a worker may wait for data.
ProfileTotals profile_totals(std::vector<WorkerTimes> workers, bool copies);
std::vector<ProfileGroup> profile_groups(GroupBy by);  // most seconds first
KernelStat kernel_stat(const Kernel* kernel);          // also while profiling, of finished tasks
const TaskRecord& profile_task(int64_t i);             // in the order of submission

// The order that the tasks recorded so far keep, and the tasks that task i waited for in it,
// sorted.
Edges profile_order();
std::vector<uint32_t> tasks_before(const Edges& order, int64_t i);

}  // namespace nn
