// A handle that the main thread holds.
#pragma once
#include <starpu.h>

#include "engine/base/interrupts.h"
#include "engine/workers/waits.h"

namespace nn {

// Holds a handle while the main thread reads or writes what it stands for. Signals do not end its
// wait, because they would leave a tile between two places.
class Acquired {
public:
    Acquired(StarpuHandle h, bool writes) : handle(h) {
        ensure_awake();
        const InterruptsDeferred until_it_is_held;
        held_ = wait_and_hold(handle, writes);
    }
    char* memory() const { return reinterpret_cast<char*>(starpu_variable_get_local_ptr(handle)); }
    const StarpuHandle handle;

private:
    HeldTile held_;
};

}  // namespace nn
