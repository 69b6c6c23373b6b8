#include "engine/graph/task.h"

#include "engine/base/error.h"
#include "engine/graph/context.h"

namespace nn {

bool Task::add_tile(const TilePtr& tile, Mode mode) {
    if (handles == max_handles) return false;
    tiles[handles] = tile;
    modes[handles++] = mode;
    return true;
}

void apply_patches(const Task& task, TaskArg* arg, bool recorded) {
    for (const Patch& patch : task.patches) {
        unsigned char* at = arg->params + patch.offset;
        if (patch.kind == Patch::scalar) {
            const double value = scalar_value(patch.scalar_id);
            std::memcpy(at, &value, sizeof value);
        } else if (recorded) {
            uint64_t key[2];
            std::memcpy(key, at, sizeof key);
            key[0] = random_seed();
            key[1] += random_counter();
            std::memcpy(at, key, sizeof key);
        }
    }
}

std::string description_of(const Kernel& kernel, Dtype dtype, int32_t tile, const Dims& extent) {
    std::string out = format("kernel %s, %s", kernel.name.c_str(), dtype_name(dtype));
    if (!extent.empty())
        out += format(", tile %d of shape %s", tile + 1, to_string(extent).c_str());
    return out;
}

}  // namespace nn
