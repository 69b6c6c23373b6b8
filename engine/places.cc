// The memories of the machine: RAM first, then the GPUs'; what they hold, and what moves between
// them.
#include <starpu.h>

#include "engine/error.h"
#include "engine/memory.h"
#include "engine/runtime.h"

namespace nn {

int places() { return running() ? int(starpu_memory_nodes_get_count()) : 1; }

static void check_place(int number) {
    if (number < 0 || number >= places()) fail("there is no memory %d", number);
}

std::string place_name(int number) {
    check_place(number);
    if (!running() || starpu_node_get_kind(unsigned(number)) == STARPU_CPU_RAM) return "RAM";
    return format("GPU %d", starpu_memory_node_get_devid(unsigned(number)));
}

PlaceMemory place_memory(int number) {
    check_place(number);
    if (number == 0) {
        const MemoryInfo memory = memory_info();
        return {memory.in_use + memory.cached, memory.budget};
    }
    return {int64_t(starpu_memory_get_used(unsigned(number))),
            int64_t(starpu_memory_get_total(unsigned(number)))};
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
