#include "engine/machine/host.h"

#include <sched.h>
#include <starpu_config.h>
#include <unistd.h>
#if defined(NN_CUDA)
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include "engine/base/error.h"
#include "engine/machine/control_groups.h"
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

// Bytes of tiles that a GPU holds: those of nn.devices, else what StarPU takes by default. Nothing
// is known of a GPU that this host lacks; start() refuses it.
int64_t tile_bytes_of_gpu([[maybe_unused]] int gpu) {
    int64_t most = 0;
#if defined(NN_CUDA)
    if (gpu < gpus_of_host()) {
        cudaDeviceProp properties;
        if (const cudaError_t status = cudaGetDeviceProperties(&properties, gpu);
            status != cudaSuccess) {
            cudaGetLastError();  // later calls must not find this error
            fail("cannot read the memory size of GPU %d: %s (error %d of cudaGetDeviceProperties)",
                 gpu, cudaGetErrorString(status), int(status));
        }
        most = int64_t(properties.totalGlobalMem) / 10 * 9;
    }
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

struct Gpus {
    int count = 0;
    std::string problem;  // why CUDA finds none, although the machine seems to have some
};

#if defined(NN_CUDA)
std::string version_text(int version) {
    return format("%d.%d", version / 1000, version % 100 / 10);
}

// CUDA reports a missing driver as one that is too old.
std::string problem_of(cudaError_t status) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaGetLastError();  // later calls must not find this error
    if (status != cudaErrorInsufficientDriver)
        return format("CUDA fails: %s (error %d of cudaGetDeviceCount)", cudaGetErrorString(status),
                      int(status));
    if (driver == 0)
        return access("/dev/nvidiactl", F_OK) == 0
                   ? "libcuda.so.1 of NVIDIA's driver is missing; in a container, start it with "
                     "its GPUs (--gpus all)"
                   : "";
    const std::map<int, const char*> needed = {{11, "450"}, {12, "525"}, {13, "580"}};
    const auto found = needed.find(runtime / 1000);
    return format(
        "the driver is too old: it supports CUDA %s, and this build needs CUDA %s; "
        "install driver %s or later",
        version_text(driver).c_str(), version_text(runtime).c_str(),
        found == needed.end() ? "of that version" : found->second);
}
#endif

const Gpus& gpus_found() {
    static const Gpus found = [] {
        Gpus out;
#if defined(NN_CUDA)
        const cudaError_t status = cudaGetDeviceCount(&out.count);
        if (status == cudaSuccess) return out;
        out.count = 0;
        if (status != cudaErrorNoDevice) out.problem = problem_of(status);
#endif
        return out;
    }();
    return found;
}

// The hardware threads that the process may use; all of them if the system does not say.
cpu_set_t allowed_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return set;
    const long online = std::min<long>(sysconf(_SC_NPROCESSORS_ONLN), CPU_SETSIZE);
    for (int cpu = 0; cpu < std::max(1L, online); ++cpu) CPU_SET(cpu, &set);
    return set;
}

int cores_of_machine() {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int cpus = int(std::min<long>(sysconf(_SC_NPROCESSORS_CONF), CPU_SETSIZE));
    for (int cpu = 0; cpu < cpus; ++cpu)  // those that are switched off have no topology
        if (access(format("/sys/devices/system/cpu/cpu%d/topology", cpu).c_str(), F_OK) == 0)
            CPU_SET(cpu, &set);
    return int(cores_of(set).size());
}

std::vector<std::vector<int>> share_of_rank;  // where threads cannot be bound to it

// A worker that waits occupies its core too. So with a quota of 1.5 cores, a second worker would
// have the whole process stopped for a part of each period: whole cores count.
CoreLimit find_limit() {
    CoreLimit out;
    const auto cores = share_of_rank.empty() ? cores_of(allowed_threads()) : share_of_rank;
    const int all = std::max(cores_of_machine(), int(cores.size()));
    out.cores = out.bindable = std::max(1, int(cores.size()));
    out.why = format("all %d core%s of this machine", all, all == 1 ? "" : "s");
    if (out.cores < all)
        out.why = format(ranks().on_host > 1
                             ? "the share of each of several ranks on this host is %d of %d cores"
                             : "the affinity mask or cpuset of this process allows %d of %d cores",
                         out.cores, all);
    const double quota = cpu_quota(control_groups("cpu")) / ranks().on_host;
    if (quota <= 0 || quota >= out.cores) return out;
    out.cores = std::max(1, int(quota + 0.001));
    out.why = format("the quota of the control group allows %.3g of %d cores%s", quota, all,
                     ranks().on_host > 1 ? " to each rank" : "");
    return out;
}

// The ranks of a host divide so many things in their order. The first one of this rank's.
size_t before_share(size_t all, int rank_on_host) {
    return size_t(rank_on_host) * all / size_t(ranks().on_host);
}

}  // namespace

int gpus_of_host() { return gpus_found().count; }
const std::string& gpu_problem() { return gpus_found().problem; }

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

const CoreLimit& core_limit() {
    static const CoreLimit limit = find_limit();
    return limit;
}

// One kernel keeps the vector units of a core busy, so hardware threads of one core count once.
int usable_cores() { return core_limit().cores; }

bool workers_are_bound(std::string* refusal) {
    const CoreLimit& limit = core_limit();
    // Each container with a quota would bind its workers to the same first cores.
    if (limit.cores < limit.bindable && host().count(Device::cpu) < limit.bindable) return false;
    cpu_set_t all = allowed_threads(), one;
    int error = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && error == 0; ++cpu) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) error = errno;
    }
    sched_setaffinity(0, sizeof all, &all);
    if (error) *refusal = std::strerror(error);
    return error == 0;
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
    if (sched_setaffinity(0, sizeof share, &share) == 0) return;
    share_of_rank.assign(cores.begin() + long(first), cores.begin() + long(end));
}

}  // namespace nn
