#include "engine/residency/homes.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/planted_faults.h"
#include "engine/memory/arena.h"
#include "engine/residency/acquired.h"
#include "engine/workers/deferred.h"
#include "engine/workers/failures.h"
#include "engine/workers/waits.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

struct Home;

struct State {
    struct Level {
        std::unique_ptr<Slots> slots;
        uint64_t planned_tasks = 0;
    };
    std::vector<Level> levels;
    std::unordered_set<Home*> homes;
    int64_t promised = 0;
    uint64_t fetches = 0;
};
// Never destroyed: tiles may be freed while the process ends.
State& state() {
    static auto* const instance = new State;
    return *instance;
}

// A value for the new handle of a tile: StarPU aborts at the first read otherwise.
StarpuHandle no_value(Tile& tile) { return Acquired(handle_of(tile), true).handle; }

StarpuHandle claim_in(Slots& slots, const Tile& tile, uint32_t slot) {
    return slots.claim(slot, slot_blocks(int64_t(tile.bytes)));
}
bool is_lowest(size_t level) { return level + 1 == state().levels.size(); }
StarpuHandle claim_at(const TilePlace& place, const Tile& tile) {
    return claim_in(slots(place.level), tile, place.slot);
}

// Writes a value that the main thread holds to an extent; `from` is its handle.
void write_value(const Tile& tile, StarpuHandle from, const char* memory, const Extent& extent) {
    const Acquired target(extent.handle(), true);
    if (has_failed_value(from)) return note_transfer_skipped(from, extent.handle());
    tile_checks::need(from, tile_checks::value_of(tile), {memory, tile.bytes});
    write_now(extent, memory, tile.bytes, name_of(tile), tile_checks::value_of(tile));
    note_transfer(extent.handle(), "");
}

// Values of slots on a GPU that have another level below pass through RAM outside of plans: one at
// a time, because plans leave little of it free.
std::shared_ptr<Extent> new_passage(const Tile& tile) {
    return std::make_shared<Extent>(pinned_ram(), int64_t(tile.bytes), name_of(tile).text);
}
void submit_passage(bool loads, const TilePlace& place, const Tile& tile,
                    const std::shared_ptr<Extent>& passage) {
    submit_transfer({loads, claim_at(place, tile), slots(place.level).memory(place.slot),
                     int64_t(tile.bytes), end_in(passage),
                     state().levels[place.level].planned_tasks, name_of(tile),
                     tile_checks::value_of(tile)});
}
void load_through_ram(const Tile& tile, StarpuHandle from, const char* memory,
                      const TilePlace& place) {
    const auto passage = new_passage(tile);
    write_value(tile, from, memory, *passage);
    submit_passage(true, place, tile, passage);
    const Acquired until_it_is_loaded(passage->handle(), true);
}

// The storage of a tile at home.
struct Home : StoredTile {
    Home(Tile& t, const TilePlace& to, std::shared_ptr<Extent> e)
        : StoredTile(t), extent(std::move(e)) {
        move_to(to);
        state().homes.insert(this);
    }
    ~Home() override { state().homes.erase(this); }
    void move_to(const TilePlace& to) {
        at = to;
        slot_handle = is_in_store() ? nullptr : claim_at(at, tile);
        // Transfers to and from a GPU change a lower slot, and StarPU does not see it.
        const bool is_usable = !is_in_store() && at.level == 0 && slots(0).in_ram();
        tile.handle = is_usable ? slot_handle : nullptr;
    }
    bool is_in_store() const { return at == in_store; }
    bool is_in_ram() const { return !is_in_store() && slots(at.level).in_ram(); }
    // On a GPU, above another level of slots.
    bool has_passage() const { return !is_in_store() && !is_in_ram() && !is_lowest(at.level); }
    // Stores the value if it is in a slot.
    const std::shared_ptr<Extent>& stored_extent() {
        if (is_in_store() || !tile.has_value()) return extent;
        extent_of(tile);
        if (has_passage()) {
            const auto passage = passed_to_ram();
            const Acquired source(passage->handle(), false);
            write_value(tile, source.handle, reinterpret_cast<char*>(passage->place()), *extent);
        } else {
            submit_slot_transfer(false, at, tile, extent);
        }
        return extent;
    }
    std::shared_ptr<Extent> passed_to_ram() const {
        auto passage = new_passage(tile);
        submit_passage(false, at, tile, passage);
        return passage;
    }
    // The value for the main thread, and the handle that it has. Null if that failed.
    TransferBuffer read(const std::shared_ptr<Extent>& from) {
        const Acquired source(from ? from->handle() : slot_handle, false);
        if (has_failed_value(source.handle)) return {};
        const auto value = tile_checks::value_of(tile);
        if (from) return read_now(*from, tile.bytes, name_of(tile), value);
        const char* const memory = slots(at.level).memory(at.slot);
        tile_checks::need(slot_handle, value, {memory, tile.bytes});
        TransferBuffer out = transfer_buffer(tile.bytes);
        std::memcpy(out.get(), memory, tile.bytes);
        return out;
    }
    void drop() override {}
    bool failed(const std::unordered_set<StarpuHandle>& handles) const override {
        return slot_handle ? handles.count(slot_handle) : extent && handles.count(extent->handle());
    }
    // Throws if the value cannot be read from the store; nothing is changed then.
    void fetch(bool reads) override {
        const bool passes = has_passage();
        const bool has_copy = !is_in_ram() && !passes;  // in the extent, after it
        Tile& t = tile;
        const bool wanted = reads && t.has_value();
        const std::shared_ptr<Extent> from = has_copy           ? stored_extent()
                                             : passes && wanted ? passed_to_ram()
                                                                : nullptr;
        const StarpuHandle source = from ? from->handle() : slot_handle;
        TransferBuffer value;
        if (wanted) value = read(from);
        ++state().fetches;
        const TilePlace before = has_copy ? in_store : at;
        const auto kept = extent;
        new_handle(t);  // deletes this object
        if (wanted && !value) return note_transfer_skipped(source, no_value(t));
        if (value) {
            const Acquired target(handle_of(t), true);
            if (!lacks_memory(target.handle)) std::memcpy(target.memory(), value.get(), t.bytes);
            tile_checks::note_same(target.handle, source, "a copy");
        }
        if (value && lacks_memory(handle_of(t))) {
            t.storage = std::make_unique<Home>(t, before, kept);
            throw OutOfMemory(no_memory_for(t.bytes));
        }
        auto& stored = static_cast<StoredTile&>(*t.storage);
        stored.copy = kept, stored.copy_version = has_copy ? t.version : t.version - 1;
    }
    TilePlace at;
    StarpuHandle slot_handle;
    std::shared_ptr<Extent> extent;
};

Home* home_of(const Tile& tile) { return dynamic_cast<Home*>(tile.storage.get()); }

std::shared_ptr<Extent> copy_of(const Tile& tile) {
    return std::static_pointer_cast<Extent>(static_cast<StoredTile&>(*tile.storage).copy);
}

// Moves a tile from memory that StarPU manages to the store.
void put_in_store(Tile& tile) {
    auto extent = copy_of(tile);
    const bool valid =
        extent && (static_cast<StoredTile&>(*tile.storage).copy_version == tile.version ||
                   planted::is_next(planted::copy_stale));
    if (!extent) extent = new_extent(tile, int64_t(tile.bytes));
    if (!valid && tile.has_value()) {
        const Acquired source(handle_of(tile), false);
        write_value(tile, source.handle, source.memory(), *extent);
    }
    tile.storage = std::make_unique<Home>(tile, in_store, std::move(extent));
}

// The same into a slot.
void put_in_slot(Tile& tile, const TilePlace& to) {
    if (tile.has_value()) {
        const Acquired source(handle_of(tile), false);
        if (!slots(to.level).in_ram()) {
            load_through_ram(tile, source.handle, source.memory(), to);
        } else {
            const Acquired target(claim_at(to, tile), true);
            if (has_failed_value(source.handle)) {
                note_transfer_skipped(source.handle, target.handle);
            } else {
                const auto value = tile_checks::value_of(tile);
                tile_checks::need(source.handle, value, {source.memory(), tile.bytes});
                std::memcpy(target.memory(), source.memory(), tile.bytes);
                tile_checks::note_same(target.handle, source.handle, "a copy");
                note_transfer(target.handle, "");
            }
        }
    }
    auto extent = copy_of(tile);
    tile.storage = std::make_unique<Home>(tile, to, std::move(extent));
}

}  // namespace

std::shared_ptr<Extent> new_extent(const Tile& tile, int64_t bytes) {
    return std::make_shared<Extent>(lowest_store(), bytes, name_of(tile).text);
}

void promise_ram(int64_t bytes) { state().promised = std::max(state().promised, bytes); }

TierUse tier_use() {
    TierUse out;
    for (const State::Level& level : state().levels) out.slots.push_back(level.slots->bytes());
    out.disk = use_of_disk(), out.ram = use_of_pinned_ram();
    return out;
}

void drop_tiers() {
    state().levels.clear();
    staging_buffer().reset();
    drop_stores();
}

bool slots_exist() { return !state().levels.empty(); }
Slots& slots(size_t level) { return *state().levels[level].slots; }
std::vector<uint32_t> blocks_of_slots() {
    std::vector<uint32_t> out;
    for (const State::Level& level : state().levels) out.push_back(level.slots->blocks());
    return out;
}

std::vector<HomeOf> homes() {
    std::vector<HomeOf> out;
    for (Home* home : state().homes) out.push_back({&home->tile, home->at});
    std::sort(out.begin(), out.end(),
              [](const HomeOf& a, const HomeOf& b) { return a.tile->number < b.tile->number; });
    return out;
}

TilePlace home_of_tile(const Tile& tile) {
    const Home* const home = home_of(tile);
    return home ? home->at : in_store;
}

bool is_in_store(const Tile& tile) {
    const Home* const home = home_of(tile);
    return home && home->is_in_store();
}

std::shared_ptr<Extent> extent_of(Tile& tile) {
    Home* const home = home_of(tile);
    if (!home->extent) home->extent = new_extent(tile, int64_t(tile.bytes));
    return home->extent;
}

void put_home(Tile& tile, const TilePlace& to) {
    Home* const home = home_of(tile);
    if (!home) {
        if (to == in_store) return put_in_store(tile);
        handle_of(tile);
        if (slots(to.level).in_ram() || !is_lowest(to.level)) return put_in_slot(tile, to);
        put_in_store(tile);
        return put_home(tile, to);
    }
    if (home->is_in_store() == (to == in_store)) return;
    if (to == in_store) {
        home->stored_extent();
    } else if (tile.has_value() && !is_lowest(to.level)) {
        const StarpuHandle from = extent_of(tile)->handle();
        const TransferBuffer value = home->read(home->extent);
        load_through_ram(tile, from, value.get(), to);
    } else if (tile.has_value()) {
        submit_slot_transfer(true, to, tile, extent_of(tile));
    }
    move_home(tile, to);
}

void move_home(Tile& tile, const TilePlace& to) {
    Home* const home = home_of(tile);
    if (home) home->move_to(to);
}

void bring_to_memory(Tile& tile) {
    try {
        handle_of(tile);
    } catch (const Error& e) {
        new_handle(tile);
        note_transfer(no_value(tile), e.what());
    }
}

void submit_slot_transfer(bool loads, const TilePlace& place, const Tile& tile,
                          const std::shared_ptr<Extent>& extent, uint64_t due) {
    const State::Level& level = state().levels[place.level];
    submit_transfer({loads, claim_at(place, tile), level.slots->memory(place.slot),
                     int64_t(tile.bytes), end_in(extent), level.planned_tasks + due, name_of(tile),
                     tile_checks::value_of(tile)});
}

void submit_level_transfer(bool loads, const TilePlace& place, uint32_t slot_below,
                           const Tile& tile, uint64_t due) {
    const State::Level& level = state().levels[place.level];
    Slots& below = slots(place.level + 1);
    const StarpuHandle handle = claim_in(below, tile, slot_below);
    submit_transfer(
        {loads,
         claim_at(place, tile),
         level.slots->memory(place.slot),
         int64_t(tile.bytes),
         {pinned_ram(), reinterpret_cast<int64_t>(below.memory(slot_below)), handle, {}},
         level.planned_tasks + due,
         name_of(tile),
         tile_checks::value_of(tile)});
}

std::shared_ptr<Extent> stored_value(Tile& tile) {
    Home* const home = home_of(tile);
    return home && !tile.handle ? home->stored_extent() : nullptr;
}

uint64_t tiles_brought_to_memory() { return state().fetches; }

void count_planned_tasks(size_t level, uint64_t tasks) {
    state().levels[level].planned_tasks += tasks;
}

// Moves tiles that StarPU manages to the store until `more` bytes fit beside the rest. Those that
// have been in memory for the longest time leave first.
static void make_room(int64_t more, const std::vector<Tile*>& needed) {
    more += state().promised + reserved_ram() / 2;
    if (staging_buffer()) more += staging_buffer()->bytes();
    for (const State::Level& level : state().levels)
        if (level.slots->in_ram()) more += level.slots->bytes();
    const int64_t limit = tiers().bytes(NodeKind::ram) - more;
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

void make_slots(const std::vector<uint32_t>& blocks) {
    finish_deferred();
    if (slots_exist()) {
        for (Home* home : state().homes) put_home(home->tile, in_store);
        wait_for_tasks();
    }
    std::vector<State::Level> levels(blocks.size());
    for (size_t level = 0; level < state().levels.size(); ++level)
        levels[level].planned_tasks = state().levels[level].planned_tasks;
    state().levels.clear();
    prepare_for_slots();
    if (tiers().has_disk()) make_room(blocks.back() * slot_block, {});
    wait_for_tasks();  // StarPU frees memory after them
    if (tiers().has_disk()) arena_trim();
    for (size_t level = blocks.size(); level-- > 0;) {
        const bool on_gpu = tiers().levels[level].kind == NodeKind::gpu;
        levels[level].slots = std::make_unique<Slots>(blocks[level], on_gpu ? only_gpu().node : 0,
                                                      tiers().on_gpu() && !on_gpu);
    }
    state().levels = std::move(levels);
}

void prepare_tiles(const std::vector<Tile*>& needed) {
    if (!tiers().exist()) return;
    int64_t more = 0;
    for (const Tile* tile : needed) {
        finish_deferred_on(*tile);
        note_eager_tile(int64_t(tile->bytes));
        if (!tile->handle && !tile->recording) more += int64_t(arena_bytes(tile->bytes));
    }
    if (tiers().has_disk()) make_room(more, needed);
}

}  // namespace nn
