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

void apply_scalar_patches(const Task& task, TaskArg* arg) {
    for (const Patch& patch : task.patches) {
        if (patch.kind != Patch::scalar) continue;
        const double value = scalar_value(patch.scalar_id);
        std::memcpy(arg->params + patch.offset, &value, sizeof value);
    }
}

void shift_random_keys(const Task& task, TaskArg* arg, uint64_t randoms) {
    for (const Patch& patch : task.patches) {
        if (patch.kind != Patch::random_key) continue;
        uint64_t key[2];
        std::memcpy(key, arg->params + patch.offset, sizeof key);
        key[1] += randoms;
        std::memcpy(arg->params + patch.offset, key, sizeof key);
    }
}

void apply_patches(const Task& task, TaskArg* arg, uint64_t earlier_randoms) {
    apply_scalar_patches(task, arg);
    shift_random_keys(task, arg, random_counter() + earlier_randoms);
    const uint64_t seed = random_seed();
    for (const Patch& patch : task.patches)
        if (patch.kind == Patch::random_key)
            std::memcpy(arg->params + patch.offset, &seed, sizeof seed);
}

std::string description_of(const Kernel& kernel, Dtype dtype, int32_t tile, const Dims& extent) {
    std::string out = format("kernel %s, %s", kernel.name.c_str(), dtype_name(dtype));
    if (!extent.empty())
        out += format(", tile %d of shape %s", tile + 1, to_string(extent).c_str());
    return out;
}

}  // namespace nn
