#include "engine/runtime/handles.h"

#include <starpu.h>

namespace nn {
namespace {

struct Registered;

// Never destroyed: tiles may be freed while the process ends.
std::unordered_set<Registered*>& all() {
    static auto* const registered = new std::unordered_set<Registered*>;
    return *registered;
}

struct Registered : TileStorage {
    explicit Registered(Tile& t) : tile(t) {
        starpu_variable_data_register(&handle, -1, 0, tile.bytes);
        all().insert(this);
    }
    ~Registered() override {
        all().erase(this);
        if (handle) starpu_data_unregister_submit(handle);
    }
    Tile& tile;
    StarpuHandle handle = nullptr;
};

}  // namespace

StarpuHandle handle_of(Tile& tile) {
    if (!tile.storage) tile.storage = std::make_unique<Registered>(tile);
    return static_cast<Registered&>(*tile.storage).handle;
}

bool is_valid_on(const Tile& tile, int node) {
    int allocated, valid = 0, loading, requested;
    if (tile.has_value() && tile.storage)
        starpu_data_query_status2(static_cast<Registered&>(*tile.storage).handle, node, &allocated,
                                  &valid, &loading, &requested);
    return valid != 0;
}

void forget_values(const std::unordered_set<StarpuHandle>& failed) {
    for (Registered* r : all())
        if (!r->tile.recording && failed.count(r->handle)) r->tile.value = Tile::Value::failed;
}

void drop_handles() {
    const std::unordered_set<Registered*> registered = all();
    for (Registered* r : registered) {
        starpu_data_unregister_no_coherency(r->handle);
        r->handle = nullptr;
        if (r->tile.has_value()) r->tile.value = Tile::Value::ended;
        r->tile.storage.reset();
    }
}

}  // namespace nn
