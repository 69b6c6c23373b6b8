#include "engine/runtime/homes.h"

#include <starpu.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/machine/description.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/memory/disk.h"
#include "engine/memory/disk_rate.h"
#include "engine/memory/stalls.h"
#include "engine/runtime/deferred.h"
#include "engine/runtime/failures.h"
#include "engine/runtime/host_store.h"
#include "engine/runtime/waits.h"
#include "engine/runtime/workers.h"

namespace nn {
namespace {

struct Home;

struct Tiers {
    TierSettings settings;
    double measured_rate = 0;  // of the disk; 0: not known
    bool disk_is_measured = false;
    std::shared_ptr<Store> store;
    std::unique_ptr<Slots> slots;
    std::unordered_set<Home*> homes;
    int64_t promised = 0, largest_tile = 0;
    int64_t taken_from_starpu = 0;  // bytes of the GPU's memory that it leaves to slots
    uint64_t planned_tasks = 0, fetches = 0;
};
// Never destroyed: tiles may be freed while the process ends.
Tiers& state() {
    static auto* const instance = new Tiers;
    return *instance;
}

// Holds a handle while the main thread reads or writes what it stands for.
struct Acquired {
    const StarpuHandle handle;
    Acquired(StarpuHandle h, bool writes) : handle(h) {
        ensure_awake();
        starpu_data_acquire_on_node(handle, STARPU_MAIN_RAM, writes ? STARPU_W : STARPU_R);
    }
    ~Acquired() { starpu_data_release_on_node(handle, STARPU_MAIN_RAM); }
    Acquired(const Acquired&) = delete;
    char* memory() const { return reinterpret_cast<char*>(starpu_variable_get_local_ptr(handle)); }
};

// A value for the new handle of a tile: StarPU aborts at the first read otherwise.
StarpuHandle no_value(Tile& tile) { return Acquired(handle_of(tile), true).handle; }

StarpuHandle claim_slot(const Tile& tile, uint32_t slot) {
    return state().slots->claim(slot, slot_blocks(int64_t(tile.bytes)));
}

// The storage of a tile at home.
struct Home : StoredTile {
    Home(Tile& t, uint32_t s, std::shared_ptr<Extent> e) : StoredTile(t), extent(std::move(e)) {
        move_to(s);
        state().homes.insert(this);
    }
    ~Home() override { state().homes.erase(this); }
    void move_to(uint32_t s) {
        slot = s;
        slot_handle = slot == no_slot ? nullptr : claim_slot(tile, slot);
        tile.handle = slot != no_slot && state().slots->in_ram() ? slot_handle : nullptr;
    }
    // Stores the value if it is in a slot.
    const std::shared_ptr<Extent>& stored_extent() {
        if (slot != no_slot && tile.has_value())
            submit_slot_transfer(false, slot, tile, extent_of(tile));
        return extent;
    }
    void drop() override {}
    bool failed(const std::unordered_set<StarpuHandle>& handles) const override {
        return slot != no_slot ? handles.count(slot_handle)
                               : extent && handles.count(extent->handle());
    }
    // Throws if the value cannot be read from the store; nothing is changed then.
    void fetch(bool reads) override {
        const std::shared_ptr<Extent> from = stored_extent();
        Tile& t = tile;
        TransferBuffer value{nullptr, std::free};
        bool failed = false;
        if (reads && t.has_value()) {
            const Acquired source(from->handle(), false);
            failed = has_failed_value(from->handle());
            if (!failed) value = read_now(*from, t.bytes, name_of(t));
        }
        ++state().fetches;
        new_handle(t);  // deletes this object
        if (failed) return note_transfer_skipped(from->handle(), no_value(t));
        if (value) {
            const Acquired target(handle_of(t), true);
            if (!lacks_memory(target.handle)) std::memcpy(target.memory(), value.get(), t.bytes);
        }
        if (value && lacks_memory(handle_of(t))) {
            t.storage = std::make_unique<Home>(t, no_slot, from);
            throw OutOfMemory(no_memory_for(t.bytes));
        }
        auto& stored = static_cast<StoredTile&>(*t.storage);
        stored.copy = from, stored.copy_version = t.version;
    }
    uint32_t slot;
    StarpuHandle slot_handle;
    std::shared_ptr<Extent> extent;
};

Home* home_of(const Tile& tile) { return dynamic_cast<Home*>(tile.storage.get()); }

// Moves a tile from memory that StarPU manages to the store.
void put_in_store(Tile& tile) {
    auto& stored = static_cast<StoredTile&>(*tile.storage);
    auto extent = std::static_pointer_cast<Extent>(stored.copy);
    const bool valid = extent && stored.copy_version == tile.version;
    if (!extent) extent = new_extent(tile);
    if (!valid && tile.has_value()) {
        const Acquired source(handle_of(tile), false), target(extent->handle(), true);
        if (has_failed_value(source.handle)) {
            note_transfer_skipped(source.handle, extent->handle());
        } else {
            write_now(*extent, source.memory(), tile.bytes, name_of(tile));
            note_transfer(extent->handle(), "");
        }
    }
    tile.storage = std::make_unique<Home>(tile, no_slot, std::move(extent));
}

}  // namespace

TransferName name_of(const Tile& tile) {
    constexpr const char* kinds[tile_kinds] = {"",
                                               " of the weights",
                                               " of the gradients",
                                               " of the optimizer state",
                                               " of the activations",
                                               " of the cache"};
    return {format("tile %llu of %s%s", static_cast<unsigned long long>(tile.number),
                   human_bytes(double(tile.bytes)).c_str(), kinds[tile.kind]),
            tile.kind};
}

static std::shared_ptr<Store> tier_store() {
    Tiers& s = state();
    if (!s.store && s.settings.gpu > 0) s.store = std::make_shared<HostStore>(only_gpu().device);
    if (!s.store)
        s.store =
            std::make_shared<Disk>(Disk::Options{s.settings.disk_folder, s.settings.disk_rate});
    return s.store;
}

std::shared_ptr<Extent> new_extent(const Tile& tile) {
    return std::make_shared<Extent>(tier_store(), int64_t(tile.bytes), name_of(tile).text);
}

const TierSettings& tiers() { return state().settings; }

int64_t rest_of_gpu() { return node_memory(only_gpu().node).limit - tiers().gpu; }

// Leaves a part of the GPU's memory to slots. StarPU takes the rest for small tiles and eager
// tasks.
static void take_from_starpu(int64_t bytes) {
    constexpr int64_t rest = int64_t(64) << 20;
    const auto count = first_streams().size();
    if (count != 1)
        fail("memory.gpu needs one GPU, but %zu are in use; nn.devices{gpus=1} chooses one", count);
    const NodeMemory memory = node_memory(only_gpu().node);
    if (bytes + rest > memory.limit)
        fail(
            "memory.gpu: %s are too many, because %s of the GPU's %s must remain for small tiles; "
            "at most %lld bytes are possible",
            human_bytes(double(bytes)).c_str(), human_bytes(double(rest)).c_str(),
            human_bytes(double(memory.limit)).c_str(), static_cast<long long>(memory.limit - rest));
    if (starpu_memory_allocate(unsigned(only_gpu().node), size_t(bytes), 0) != 0)
        fail("memory.gpu: %s are not free, %s of %s are in use; set it before tensors are created",
             human_bytes(double(bytes)).c_str(), human_bytes(double(memory.used)).c_str(),
             human_bytes(double(memory.limit)).c_str());
    state().taken_from_starpu = bytes;
}

void set_tiers(const TierSettings& settings) {
    if (state().taken_from_starpu)
        fail("memory.gpu was chosen before and cannot be changed in this process");
    if (state().store || state().slots)
        fail("memory tiers must be chosen before tiles are in slots or on disk");
    if (settings.gpu > 0 && settings.ram > 0)
        fail("memory.gpu and memory.disk cannot be combined yet: choose RAM or the disk below");
    if (settings.gpu > 0) {
        take_from_starpu(settings.gpu);
        if (tiers().ram > 0) set_disk_capacity(0), set_budget(0);
        measure_stalls(false);
        state().settings = settings;
        return;
    }
    int64_t capacity = 0;
    if (settings.ram > 0) {
        Disk({settings.disk_folder, 0, 1});  // an error if files cannot be written there
        capacity = int64_t(std::filesystem::space(settings.disk_folder).available);
    }
    set_disk_capacity(capacity);
    set_budget(settings.ram);
    measure_stalls(settings.ram > 0);
    state().settings = settings;
    state().disk_is_measured = false;
    state().measured_rate = 0;
}

int64_t reserved_ram(int64_t largest) {
    return std::max(tiers().ram / 32, 4 * std::max(largest, state().largest_tile));
}

PlanLimits tier_limits() {
    if (tiers().gpu > 0) {
        constexpr double copy_seconds = 1e-5;
        const GpuDevice gpu = only_gpu();
        return {tiers().gpu,
                0,
                {gpu.streams, gpu.link_rate, copy_seconds, true},
                rest_of_gpu(),
                "the GPU's memory",
                "memory.gpu"};
    }
    constexpr double nominal_rate = 1e9, transfer_seconds = 1e-4;
    const double measured = state().measured_rate > 0 ? state().measured_rate : nominal_rate,
                 rate = tiers().disk_rate > 0 ? tiers().disk_rate : measured;
    const int workers = std::max(1, machine().count(Device::cpu));
    return {tiers().ram, reserved_ram(), {workers, rate, transfer_seconds}};
}

// Without space for the measurement, plans use the nominal rate. Transfers of the run report a
// broken disk.
void measure_tier_disk() {
    Tiers& s = state();
    if (s.settings.disk_rate > 0 || std::exchange(s.disk_is_measured, true)) return;
    try {
        s.measured_rate = measure_disk(s.settings.disk_folder);
    } catch (const Error&) {
        s.measured_rate = 0;
    }
}

void promise_ram(int64_t bytes) { state().promised = std::max(state().promised, bytes); }

TierUse tier_use() {
    TierUse out;
    if (state().slots) out.slots = state().slots->bytes();
    if (state().store) out.store = state().store->allocated_bytes();
    if (state().store) out.totals = state().store->totals();
    return out;
}

void drop_tiers() {
    state().slots.reset();
    state().store.reset();
    if (const int64_t bytes = std::exchange(state().taken_from_starpu, 0))
        starpu_memory_deallocate(unsigned(only_gpu().node), size_t(bytes));
}

Slots* slots() { return state().slots.get(); }

std::vector<HomeOf> homes() {
    std::vector<HomeOf> out;
    for (Home* home : state().homes) out.push_back({&home->tile, home->slot});
    std::sort(out.begin(), out.end(),
              [](const HomeOf& a, const HomeOf& b) { return a.tile->number < b.tile->number; });
    return out;
}

uint32_t home_slot(const Tile& tile) {
    const Home* const home = home_of(tile);
    return home ? home->slot : no_slot;
}

bool is_in_store(const Tile& tile) {
    const Home* const home = home_of(tile);
    return home && home->slot == no_slot;
}

std::shared_ptr<Extent> extent_of(Tile& tile) {
    Home* const home = home_of(tile);
    if (!home->extent) home->extent = new_extent(tile);
    return home->extent;
}

void put_home(Tile& tile, uint32_t slot) {
    if (Home* const home = home_of(tile)) {
        if ((home->slot == no_slot) == (slot == no_slot)) return;
        const bool loads = slot != no_slot;
        if (tile.has_value())
            submit_slot_transfer(loads, loads ? slot : home->slot, tile, extent_of(tile));
        return move_home(tile, slot);
    }
    const StarpuHandle from = handle_of(tile);
    if (slot == no_slot) return put_in_store(tile);
    if (!slots()->in_ram()) {
        put_in_store(tile);
        return put_home(tile, slot);
    }
    if (tile.has_value()) {
        const Acquired source(from, false), target(claim_slot(tile, slot), true);
        if (has_failed_value(from)) {
            note_transfer_skipped(source.handle, target.handle);
        } else {
            std::memcpy(target.memory(), source.memory(), tile.bytes);
            note_transfer(target.handle, "");
        }
    }
    auto extent = std::static_pointer_cast<Extent>(static_cast<StoredTile&>(*tile.storage).copy);
    tile.storage = std::make_unique<Home>(tile, slot, std::move(extent));
}

void move_home(Tile& tile, uint32_t slot) {
    Home* const home = home_of(tile);
    if (!home) return;
    home->move_to(slot);
}

void bring_to_memory(Tile& tile) {
    try {
        handle_of(tile);
    } catch (const Error& e) {
        new_handle(tile);
        note_transfer(no_value(tile), e.what());
    }
}

void submit_slot_transfer(bool loads, uint32_t slot, const Tile& tile,
                          const std::shared_ptr<Extent>& extent, uint64_t due) {
    submit_transfer({loads, claim_slot(tile, slot), slots()->memory(slot), int64_t(tile.bytes),
                     extent, state().planned_tasks + due, name_of(tile)});
}

std::shared_ptr<Extent> stored_value(Tile& tile) {
    Home* const home = home_of(tile);
    return home && !tile.handle ? home->stored_extent() : nullptr;
}

uint64_t tiles_brought_to_memory() { return state().fetches; }

void count_planned_tasks(uint64_t tasks) { state().planned_tasks += tasks; }

// Moves tiles that StarPU manages to the disk until `more` bytes fit beside the rest. Those that
// have been in memory for the longest time leave first.
static void make_room(int64_t more, const std::vector<Tile*>& needed) {
    const int64_t slot_bytes = slots() ? slots()->bytes() : 0;
    const int64_t limit = tiers().ram - slot_bytes - state().promised - reserved_ram() / 2 - more;
    if (bytes_in_memory() <= limit) return;
    std::vector<StoredTile*> victims;
    for (StoredTile* stored : stored_tiles())
        if (stored->in_memory() && !stored->tile.recording && stored->tile.has_value() &&
            std::find(needed.begin(), needed.end(), &stored->tile) == needed.end())
            victims.push_back(stored);
    std::sort(victims.begin(), victims.end(),
              [](const StoredTile* a, const StoredTile* b) { return a->number < b->number; });
    for (StoredTile* victim : victims) {
        if (bytes_in_memory() <= limit) return;
        put_in_store(victim->tile);
    }
}

void make_slots(uint32_t blocks) {
    finish_deferred();
    if (slots()) {
        for (Home* home : state().homes) put_home(home->tile, no_slot);
        wait_for_tasks();
        state().slots.reset();
    }
    if (tiers().gpu > 0 && state().taken_from_starpu == 0) take_from_starpu(tiers().gpu);
    if (tiers().ram > 0) make_room(blocks * slot_block, {});
    wait_for_tasks();  // StarPU frees memory after them
    if (tiers().ram > 0) arena_trim();
    state().slots = std::make_unique<Slots>(blocks, tiers().gpu > 0 ? only_gpu().node : 0);
}

void prepare_tiles(const std::vector<Tile*>& needed) {
    if (!tiers().exist()) return;
    int64_t more = 0;
    for (const Tile* tile : needed) {
        finish_deferred_on(*tile);
        state().largest_tile = std::max(state().largest_tile, int64_t(tile->bytes));
        if (!tile->handle && !tile->recording) more += int64_t(tile->bytes);
    }
    if (tiers().ram > 0) make_room(more, needed);
}

}  // namespace nn
