#include "engine/runtime/handles.h"

#include <starpu.h>

#include <atomic>
#include <cstring>

#include "engine/base/error.h"

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

// A request of StarPU cannot be taken back. One that nothing waits for any more releases the tile
// when it is granted.
struct Request {
    Request(StarpuHandle h, std::function<void()> f) : handle(h), came(std::move(f)) {}
    const StarpuHandle handle;
    const std::function<void()> came;
    enum State { asked, there, gone };
    std::atomic<State> state{asked};
    void release() const { starpu_data_release_on_node(handle, STARPU_MAIN_RAM); }
};

void on_acquired(void* context) {
    const std::unique_ptr<std::shared_ptr<Request>> request(
        static_cast<std::shared_ptr<Request>*>(context));
    Request::State before = Request::asked;
    if ((*request)->state.compare_exchange_strong(before, Request::there))
        (*request)->came();
    else
        (*request)->release();
}

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

HeldTile hold_in_ram(StarpuHandle handle, bool write, std::function<void()> came) {
    const auto request = std::make_shared<Request>(handle, std::move(came));
    auto context = std::make_unique<std::shared_ptr<Request>>(request);
    const int status = starpu_data_acquire_on_node_cb(
        handle, STARPU_MAIN_RAM, write ? STARPU_W : STARPU_R, on_acquired, context.get());
    if (status != 0) fail("StarPU refuses to hand out a tile (%s)", std::strerror(-status));
    context.release();  // on_acquired deletes it
    return HeldTile(request.get(), [request](void*) {
        if (request->state.exchange(Request::gone) == Request::there) request->release();
    });
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
