#include "engine/graph/layers.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace nn {
namespace {

int32_t current = 0;

// Nodes of the map stay where they are, so names can be handed out as pointers.
struct Layers {
    std::vector<const char*> names{""};
    std::unordered_map<std::string, int32_t> ids{{"", 0}};
};
Layers& layers() {
    static auto* const instance = new Layers;
    return *instance;
}

}  // namespace

int32_t layer_id(const std::string& name) {
    const auto [it, is_new] = layers().ids.try_emplace(name, int32_t(layers().names.size()));
    if (is_new) layers().names.push_back(it->first.c_str());
    return it->second;
}

const char* current_layer() { return layers().names[size_t(current)]; }

int32_t set_layer(int32_t id) {
    if (id < 0 || size_t(id) >= layers().names.size()) fail("there is no layer %d", id);
    return std::exchange(current, id);
}

}  // namespace nn
