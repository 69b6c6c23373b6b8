#include "engine/machine/host.h"

#include <sched.h>
#include <starpu_config.h>
#include <unistd.h>
#if defined(NN_CUDA)
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "engine/base/error.h"
#include "engine/machine/memory_limit.h"
#include "engine/machine/ranks.h"

namespace nn {
namespace {

HostChoice choice;
std::optional<Machine> detected;

// NNLUA_CPUS, or 0 if it is not set.
int cpus_of_environment() {
    const char* cpus = std::getenv("NNLUA_CPUS");
    if (!cpus || !*cpus) return 0;
    char* end = nullptr;
    const long number = std::strtol(cpus, &end, 10);
    if (*end || number < 1 || number > most_cpu_workers())
        fail("NNLUA_CPUS is '%s'; a number of workers from 1 to %d is needed", cpus,
             most_cpu_workers());
    return int(number);
}

// Bytes of tiles that a GPU holds: those of nn.devices, else what StarPU takes by default. 0: not
// known.
int64_t tile_bytes_of_gpu([[maybe_unused]] int gpu) {
    int64_t most = 0;
#if defined(NN_CUDA)
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, gpu) == cudaSuccess)
        most = int64_t(properties.totalGlobalMem) / 10 * 9;
    else
        cudaGetLastError();  // later calls must not find this error
#endif
    return choice.gpu_memory > 0 && most > 0 ? std::min(choice.gpu_memory, most)
                                             : std::max(choice.gpu_memory, most);
}

Machine detect() {
    Machine out;
    out.ranks = ranks().count;
    const int gpus = choice.gpus < 0 ? usable_gpus() : choice.gpus;
    int cpus = choice.cpus > 0 ? choice.cpus : cpus_of_environment();
    // With GPUs, a core for each GPU's driver thread and one for the thread that submits.
    const int others = gpus > 0 ? gpus + 1 : 0;
    if (cpus == 0) cpus = std::clamp(usable_cores() - others, 1, most_cpu_workers());
    out.nodes.push_back({NodeKind::ram, 0, available_memory(cpus, 0)});
    out.workers.push_back({Device::cpu, 0, cpus, {}});
    for (int gpu = 0; gpu < gpus; ++gpu) {
        const int node = int(out.nodes.size());
        out.nodes.push_back({NodeKind::gpu, gpu, tile_bytes_of_gpu(first_gpu() + gpu)});
        out.workers.push_back({Device::cuda, node, 1, {}});
        out.links.push_back({0, node, 0});
        out.links.push_back({node, 0, 0});
    }
    return out;
}

// The ranks of a host divide so many things in their order. The first one of this rank's.
size_t before_share(size_t all, int rank_on_host) {
    return size_t(rank_on_host) * all / size_t(ranks().on_host);
}

}  // namespace

int gpus_of_host() {
#if defined(NN_CUDA)
    static const int gpus = [] {
        int count = 0;
        return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
    }();
    return gpus;
#else
    return 0;
#endif
}

int first_gpu() { return int(before_share(size_t(gpus_of_host()), ranks().number_on_host)); }
int usable_gpus() {
    return int(before_share(size_t(gpus_of_host()), ranks().number_on_host + 1)) - first_gpu();
}

std::vector<std::vector<int>> cores_of(const cpu_set_t& threads) {
    std::map<std::string, size_t> numbers;
    std::vector<std::vector<int>> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &threads)) continue;
        std::ifstream file(
            format("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu));
        std::string siblings;
        if (!std::getline(file, siblings)) siblings = std::to_string(cpu);
        const size_t core = numbers.emplace(siblings, cores.size()).first->second;
        if (core == cores.size()) cores.emplace_back();
        cores[core].push_back(cpu);
    }
    return cores;
}

// One kernel keeps the vector units of a core busy, so hardware threads of one core count once.
int usable_cores() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? int(cores_of(set).size()) : 1;
}

int most_cpu_workers() { return STARPU_MAXCPUS; }

void choose_host(const HostChoice& chosen) {
    choice = chosen;
    detected.reset();
}

const Machine& host() {
    if (!detected) detected = detect();
    return *detected;
}

bool gpu_memory_is_chosen() { return choice.gpu_memory > 0; }
bool host_is_oversubscribed() { return choice.cpus == 0 && cpus_of_environment() > usable_cores(); }

void take_share_of_cores() {
    cpu_set_t allowed;
    // mpirun or its daemon is the parent, and is bound to no part of what it may use.
    if (sched_getaffinity(getppid(), sizeof allowed, &allowed) != 0) return;
    const std::vector<std::vector<int>> cores = cores_of(allowed);
    const size_t all = cores.size();
    if (all == 0) return;
    const int mine = ranks().number_on_host;
    size_t first = before_share(all, mine), end = before_share(all, mine + 1);
    if (all < size_t(ranks().on_host)) {  // ranks take turns on a core
        first = size_t(mine) % all;
        end = first + 1;
    }
    cpu_set_t share;
    CPU_ZERO(&share);
    for (size_t core = first; core < end; ++core)
        for (int thread : cores[core]) CPU_SET(thread, &share);
    sched_setaffinity(0, sizeof share, &share);
}

}  // namespace nn
