#include "engine/workers/workers.h"

#include <starpu.h>

#include <algorithm>
#include <atomic>

#include "engine/base/error.h"
#include "engine/graph/context.h"
#include "engine/machine/description.h"
#include "engine/machine/host.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"

namespace nn {
namespace {

std::atomic<bool> is_running{false};  // GPU threads read it
bool has_gpus = false;
std::vector<std::vector<int>> streams_of_gpus;  // their workers, by the GPU's position

// The worker's number among those of its device, from 0; all CPU workers have one device.
int number_on_device(int worker) {
    int before = 0;
    for (int w = 0; w < worker; ++w) before += gpu_of(w) == gpu_of(worker);
    return before;
}

}  // namespace

bool running() { return is_running; }
void set_running(bool running) {
    is_running = running;
    has_gpus = running && starpu_cuda_worker_get_count() > 0;
    streams_of_gpus.clear();
    for (const int first : first_streams()) {
        streams_of_gpus.emplace_back();
        for (int w = 0; w < int(starpu_worker_get_count()); ++w)
            if (gpu_of(w) == gpu_of(first)) streams_of_gpus.back().push_back(w);
    }
}
bool has_gpu_workers() { return has_gpus; }
int running_cpu_workers() { return is_running ? int(starpu_cpu_worker_get_count()) : 0; }

int gpu_of(int worker) {
    return starpu_worker_get_type(worker) == STARPU_CUDA_WORKER ? starpu_worker_get_devid(worker)
                                                                : -1;
}

std::vector<int> first_streams() {
    std::vector<int> out;
    for (int w = 0; running() && w < int(starpu_worker_get_count()); ++w)
        if (gpu_of(w) >= 0 && number_on_device(w) == 0) out.push_back(w);
    return out;
}

int worker_on(int gpu, int lane) {
    const auto& streams = streams_of_gpus[size_t(gpu) % streams_of_gpus.size()];
    return streams[size_t(lane) % streams.size()];
}

std::string worker_name(int worker) {
    const int gpu = gpu_of(worker), number = number_on_device(worker);
    if (gpu < 0) return format("CPU %d", number);
    if (starpu_cuda_worker_get_count() == first_streams().size()) return format("GPU %d", gpu);
    return format("GPU %d, stream %d", gpu, number + 1);
}

GpuDevice only_gpu() {
    const std::vector<int> gpus = first_streams();
    if (gpus.empty())
        fail("memory.gpu needs a GPU, and this machine has none%s%s",
             gpu_problem().empty() ? "" : (": " + gpu_problem()).c_str(),
             machine_is_described() ? "; it can only plan for the described one" : "");
    if (gpus.size() > 1) fail("one GPU is needed, not %zu", gpus.size());
    const auto node = starpu_worker_get_memory_node(unsigned(gpus[0]));
    const double megabytes = std::min(starpu_transfer_bandwidth(STARPU_MAIN_RAM, node),
                                      starpu_transfer_bandwidth(node, STARPU_MAIN_RAM));
    return {gpu_of(gpus[0]), int(node), int(starpu_cuda_worker_get_count()), megabytes * 1e6};
}

std::string starpu_version() {
    int major, minor, release;
    starpu_get_version(&major, &minor, &release);
    return format("%d.%d.%d", major, minor, release);
}

int memory_nodes() { return running() ? int(starpu_memory_nodes_get_count()) : 1; }

static void check_node(int node) {
    if (node < 0 || node >= memory_nodes())
        fail("memory node %d is outside [0, %d)", node, memory_nodes());
}

static NodeKind kind_of(int node) {
    switch (starpu_node_get_kind(unsigned(node))) {
        case STARPU_CPU_RAM: return NodeKind::ram;
        case STARPU_CUDA_RAM: return NodeKind::gpu;
        case STARPU_DISK_RAM: return NodeKind::disk;
        default: fail("memory node %d of StarPU is of an unknown kind", node);
    }
}

std::string node_name(int node) {
    check_node(node);
    const NodeKind kind = running() ? kind_of(node) : NodeKind::ram;
    const bool is_gpu = kind == NodeKind::gpu;
    const int number = is_gpu ? starpu_memory_node_get_devid(unsigned(node)) : 0;
    return MemoryNode{kind, number, 0}.name();
}

NodeMemory node_memory(int node) {
    check_node(node);
    if (node == 0) {
        const ArenaInfo memory = arena_info();
        return {memory.in_use + memory.cached, budget()};
    }
    return {int64_t(starpu_memory_get_used(unsigned(node))),
            int64_t(starpu_memory_get_total(unsigned(node)))};
}

int64_t memory_of_gpus(const Machine& machine) {
    int64_t least = INT64_MAX;
    for (const MemoryNode& node : machine.nodes)
        if (node.kind == NodeKind::gpu) least = std::min(least, node.bytes);
    return least == INT64_MAX ? 0 : least;
}

int64_t tile_bytes_on_gpus(const Machine& machine) {
    const Where where = settings().where;
    if (where == Where::cpu || where == Where::anywhere) return 0;
    return memory_of_gpus(machine) / 10 * 9;  // StarPU rounds sizes up and keeps freed blocks
}

int64_t bytes_moved() {
    static int64_t moved = 0;
    for (int bus = 0; running() && bus < starpu_bus_get_count(); ++bus) {
        starpu_profiling_bus_info info;  // since the last time
        starpu_bus_get_profiling_info(bus, &info);
        moved += info.transferred_bytes;
    }
    return moved;
}

}  // namespace nn
