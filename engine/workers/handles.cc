#include "engine/workers/handles.h"

#include <starpu.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/workers/watchdog.h"

namespace nn {
namespace {

// Never destroyed: tiles may be freed while the process ends.
std::unordered_set<StoredTile*>& all() {
    static auto* const stored = new std::unordered_set<StoredTile*>;
    return *stored;
}

int64_t persistent_bytes = 0;
uint64_t storages = 0;

struct Registered : StoredTile {
    explicit Registered(Tile& t) : StoredTile(t) {
        starpu_variable_data_register(&registered, -1, 0, tile.bytes);
        tile.handle = registered;
        count(1);
        count_handle(1);
    }
    ~Registered() override {
        count(-1);
        count_handle(-1);
        // A lost GPU's thread may hold StarPU's locks.
        if (registered && !gpu_is_lost()) starpu_data_unregister_submit(registered);
    }
    void drop() override {
        starpu_data_unregister_no_coherency(std::exchange(registered, nullptr));
    }
    bool in_memory() const override { return true; }
    void count(int sign) const {
        if (!tile.recording) persistent_bytes += sign * int64_t(arena_bytes(tile.bytes));
    }
    StarpuHandle registered;
};

void release(StarpuHandle handle) {
    if (!gpu_is_lost()) starpu_data_release_on_node(handle, STARPU_MAIN_RAM);
}

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
    delay(0.2);
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

const std::unordered_set<StoredTile*>& stored_tiles() { return all(); }
int64_t bytes_in_memory() { return persistent_bytes; }

StoredTile::StoredTile(Tile& t) : tile(t), number(++storages) { all().insert(this); }
StoredTile::~StoredTile() { all().erase(this); }
bool StoredTile::failed(const std::unordered_set<StarpuHandle>& handles) const {
    return handles.count(handle()) > 0;
}

StarpuHandle new_handle(Tile& tile) {
    tile.storage = std::make_unique<Registered>(tile);
    return static_cast<StarpuHandle>(tile.handle);
}

void forget_storage(Tile& tile) {
    tile.handle = nullptr;
    tile.storage.reset();
}

StarpuHandle handle_of(Tile& tile, bool reads) {
    if (!tile.storage) return new_handle(tile);
    if (!tile.handle) static_cast<StoredTile&>(*tile.storage).fetch(reads);
    return static_cast<StarpuHandle>(tile.handle);
}

bool is_valid_on(const Tile& tile, int node) {
    int allocated, valid = 0, loading, requested;
    if (tile.has_value() && tile.handle)
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
    for (StoredTile* stored : all()) {
        if (!stored->failed(handles)) continue;
        if (!stored->tile.recording) stored->tile.value = Tile::Value::failed;
        if (stored->in_memory() && lacks_memory(stored->handle()))
            starpu_data_invalidate_submit(stored->handle());
    }
}

bool lacks_memory(StarpuHandle handle) {
    return is_refused(starpu_data_handle_to_pointer(handle, STARPU_MAIN_RAM));
}

void drop_handles() {
    const std::unordered_set<StoredTile*> stored = all();
    for (StoredTile* s : stored) {
        s->drop();
        if (s->tile.has_value()) s->tile.value = Tile::Value::ended;
        forget_storage(s->tile);
    }
}

}  // namespace nn
