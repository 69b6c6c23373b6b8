// The host: the part of this machine that the process may use.
#pragma once
#include <sched.h>

#include <string>
#include <vector>

#include "engine/machine/machine.h"

namespace nn {

// What decides how many cores the process may use: the machine, the affinity mask, the cpuset, or
// the quota of the control group, of which each rank on the host has its share.
struct CoreLimit {
    int cores = 1;
    int bindable = 1;  // without the quota, which names no cores
    std::string why;   // "the quota of the control group allows 1.5 of 64 cores"
};
const CoreLimit& core_limit();
int usable_cores();  // core_limit().cores; hardware threads that share a core count once
// Whether each worker is bound to a core. If not, `refusal` is the system's reason, or "" where
// binding would do harm.
bool workers_are_bound(std::string* refusal);
// The given hardware threads, grouped by core.
std::vector<std::vector<int>> cores_of(const cpu_set_t& threads);
int most_cpu_workers();  // of StarPU as it was built
int gpus_of_host();      // 0 without a driver, or in a build without CUDA
// Why CUDA finds no GPU, if not because there is none; else "".
const std::string& gpu_problem();
int usable_gpus();  // the share of this rank, if several are on the host
int first_gpu();    // of these: CUDA's number

// The user's choice of devices. cpus 0: NNLUA_CPUS, or one per core, less one per GPU to submit its
// work; gpus -1: all; gpu_memory 0: no limit.
struct HostChoice {
    int cpus = 0, gpus = -1;
    int64_t gpu_memory = 0;
};
void choose_host(const HostChoice& choice);
const Machine& host();
bool gpu_memory_is_chosen();  // HostChoice::gpu_memory is not 0
// Whether NNLUA_CPUS asks for more workers than the host has cores.
bool host_is_oversubscribed();
// Keeps this process on its share of the cores that mpirun may use. Call it before any thread
// starts: mpirun itself would leave each of two ranks one core, however many the host has.
void take_share_of_cores();

}  // namespace nn
