#include "engine/runtime/handles.h"

#include <starpu.h>

#include <atomic>
#include <cstring>

#include "engine/base/error.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"

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
        StarpuHandle handle;
        starpu_variable_data_register(&handle, -1, 0, tile.bytes);
        tile.handle = handle;
        all().insert(this);
        count_handle(1);
    }
    ~Registered() override {
        all().erase(this);
        count_handle(-1);
        if (tile.handle) starpu_data_unregister_submit(handle());
    }
    StarpuHandle handle() const { return static_cast<StarpuHandle>(tile.handle); }
    Tile& tile;
};

void release(StarpuHandle handle) { starpu_data_release_on_node(handle, STARPU_MAIN_RAM); }

}  // namespace

// StarPU cannot cancel a request, so the later event deletes it: StarPU grants it, or the HeldTile
// is destroyed.
struct RamRequest {
    enum State { requested, granted, dropped };
    const StarpuHandle handle;
    std::function<void()> notify;
    std::atomic<State> state{requested};
};

static void on_granted(void* context) {
    auto* const request = static_cast<RamRequest*>(context);
    const std::function<void()> notify = std::move(request->notify);
    RamRequest::State before = RamRequest::requested;
    if (request->state.compare_exchange_strong(before, RamRequest::granted)) return notify();
    release(request->handle);
    delete request;
}

void DropRequest::operator()(RamRequest* request) const {
    if (request->state.exchange(RamRequest::dropped) == RamRequest::requested) return;
    release(request->handle);
    delete request;
}

StarpuHandle handle_of(Tile& tile) {
    if (!tile.storage) tile.storage = std::make_unique<Registered>(tile);
    return static_cast<StarpuHandle>(tile.handle);
}

bool is_valid_on(const Tile& tile, int node) {
    int allocated, valid = 0, loading, requested;
    if (tile.has_value() && tile.storage)
        starpu_data_query_status2(static_cast<StarpuHandle>(tile.handle), node, &allocated, &valid,
                                  &loading, &requested);
    return valid != 0;
}

HeldTile hold_in_ram(StarpuHandle handle, bool write, std::function<void()> notify) {
    auto request = std::make_unique<RamRequest>(handle, std::move(notify));
    const int status = starpu_data_acquire_on_node_cb(
        handle, STARPU_MAIN_RAM, write ? STARPU_W : STARPU_R, on_granted, request.get());
    if (status != 0) fail("StarPU cannot acquire a tile (%s)", std::strerror(-status));
    return HeldTile(request.release());
}

// A tile that found no memory gets new memory at its next write.
void mark_failed(const std::unordered_set<StarpuHandle>& handles) {
    for (Registered* r : all()) {
        if (!handles.count(r->handle())) continue;
        if (!r->tile.recording) r->tile.value = Tile::Value::failed;
        if (lacks_memory(r->handle())) starpu_data_invalidate_submit(r->handle());
    }
}

bool lacks_memory(StarpuHandle handle) {
    return is_refused(starpu_data_handle_to_pointer(handle, STARPU_MAIN_RAM));
}

void drop_handles() {
    const std::unordered_set<Registered*> registered = all();
    for (Registered* r : registered) {
        starpu_data_unregister_no_coherency(r->handle());
        r->tile.handle = nullptr;
        if (r->tile.has_value()) r->tile.value = Tile::Value::ended;
        r->tile.storage.reset();
    }
}

}  // namespace nn
