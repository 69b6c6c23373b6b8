#include "engine/runtime/nodes.h"

#include <starpu.h>

#include "engine/base/error.h"
#include "engine/machine/machine.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/runtime/workers.h"

namespace nn {

int memory_nodes() { return running() ? int(starpu_memory_nodes_get_count()) : 1; }

static void check_node(int node) {
    if (node < 0 || node >= memory_nodes()) fail("there is no memory node %d", node);
}

std::string node_name(int node) {
    check_node(node);
    const bool is_ram = !running() || starpu_node_get_kind(unsigned(node)) == STARPU_CPU_RAM;
    const int device = is_ram ? 0 : starpu_memory_node_get_devid(unsigned(node));
    return MemoryNode{is_ram ? NodeKind::ram : NodeKind::gpu, device, 0}.name();
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
