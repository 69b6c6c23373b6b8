// A handle that the main thread holds.
#pragma once
#include <starpu.h>

#include "engine/base/waiting.h"
#include "engine/workers/handles.h"
#include "engine/workers/waits.h"

namespace nn {

// Holds a handle while the main thread reads or writes what it stands for.
struct Acquired {
    const StarpuHandle handle;
    Acquired(StarpuHandle h, bool writes) : handle(h) {
        ensure_awake();
        const Waiting waiting("tasks that use a tile");
        starpu_data_acquire_on_node(handle, STARPU_MAIN_RAM, writes ? STARPU_W : STARPU_R);
    }
    ~Acquired() { starpu_data_release_on_node(handle, STARPU_MAIN_RAM); }
    Acquired(const Acquired&) = delete;
    char* memory() const { return reinterpret_cast<char*>(starpu_variable_get_local_ptr(handle)); }
};

}  // namespace nn
