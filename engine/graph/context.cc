#include "engine/graph/context.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/machine/description.h"

namespace nn {
namespace {

int32_t layer = 0;  // the current one

// The keys of a map never move, so pointers to names stay valid.
struct Layers {
    std::vector<const char*> names{""};
    std::unordered_map<std::string, int32_t> ids{{"", 0}};
};
Layers& layers() {
    static auto* const instance = new Layers;
    return *instance;
}

struct Scalar {
    double value;
    bool owned = true;  // until free_scalar()
    int32_t held = 0;   // number of programs that hold it
};
std::vector<Scalar> scalars;
std::vector<int32_t> free_scalars;
uint64_t seed = 0, counter = 0;  // of random numbers

Scalar& scalar_at(int32_t scalar) {
    if (scalar >= 0 && size_t(scalar) < scalars.size()) {
        Scalar& found = scalars[size_t(scalar)];
        if (found.owned || found.held) return found;
    }
    fail("unknown or freed scalar %d", scalar);
}

void reuse_if_unused(int32_t scalar) {
    const Scalar& s = scalars[size_t(scalar)];
    if (!s.owned && !s.held) free_scalars.push_back(scalar);
}

}  // namespace

int gpus_in_use() { return settings().where == Where::cpu ? 0 : machine().count(Device::cuda); }
int workers_in_use() { return gpus_in_use() > 0 ? gpus_in_use() : machine().count(Device::cpu); }

int32_t layer_id(const std::string& name) {
    const auto [it, is_new] = layers().ids.try_emplace(name, int32_t(layers().names.size()));
    if (is_new) layers().names.push_back(it->first.c_str());
    return it->second;
}

const char* current_layer() { return layers().names[size_t(layer)]; }

int32_t set_layer(int32_t id) {
    if (id < 0 || size_t(id) >= layers().names.size())
        fail("layer %d is outside [0, %zu)", id, layers().names.size());
    return std::exchange(layer, id);
}

int32_t new_scalar(double value) {
    if (!free_scalars.empty()) {
        const int32_t scalar = free_scalars.back();
        free_scalars.pop_back();
        scalars[size_t(scalar)] = {value};
        return scalar;
    }
    scalars.push_back({value});
    return int32_t(scalars.size()) - 1;
}

void free_scalar(int32_t scalar) {
    if (!scalar_at(scalar).owned) fail("scalar %d was freed before", scalar);
    scalar_at(scalar).owned = false;
    reuse_if_unused(scalar);
}
void hold_scalar(int32_t scalar) { ++scalar_at(scalar).held; }
void release_scalar(int32_t scalar) {
    --scalar_at(scalar).held;
    reuse_if_unused(scalar);
}
double scalar_value(int32_t scalar) { return scalar_at(scalar).value; }
void set_scalar(int32_t scalar, double value) { scalar_at(scalar).value = value; }

void seed_random(uint64_t new_seed) {
    seed = new_seed;
    counter = 0;
}
uint64_t random_seed() { return seed; }
uint64_t random_counter() { return counter; }
void set_random_counter(uint64_t value) { counter = value; }

}  // namespace nn
