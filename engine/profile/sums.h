// Evaluates the records of a profile: sums by kernel, op and layer, dependencies between tasks, and
// the workers' activity at every moment. After stop_profile(), unless a comment says otherwise.
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
    // Seconds. A worker is busy, or it waits: for data of its next task to be copied; for running
    // tasks on which all submitted ones depend, or for the disk if one of its transfers waits or is
    // under way then; for tasks to be submitted; or for the engine, while a task is ready.
    double busy = 0, data = 0, disk = 0, dependencies = 0, nothing = 0, engine = 0;
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

// The dependencies between the tasks recorded so far, and the tasks that task i depends on, sorted.
Edges profile_dependencies();
std::vector<uint32_t> tasks_before(const Edges& dependencies, int64_t i);

}  // namespace nn
