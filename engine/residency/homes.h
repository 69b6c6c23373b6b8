// Homes of persistent tiles whose memory is planned: a slot of one of the levels, or an extent of
// the store below all of them. Between two runs of planned programs, such a tile is at home.
// Eager tasks use the handle of its slot in RAM, or bring its value into memory that StarPU
// manages; the next run of a planned program puts it back. With a GPU, only planned tasks use
// slots, because transfers bypass StarPU's copies of a slot on other memory nodes. Main thread
// only.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/residency/slots.h"
#include "engine/residency/tier_settings.h"
#include "engine/tiers/plan.h"

namespace nn {

struct TierUse {
    std::vector<int64_t> slots;  // bytes of each level
    StoreUse disk, ram;          // ram: with copies between slots of a GPU and of RAM
};
TierUse tier_use();
void drop_tiers();  // at the end of the session, after the tiles' storages

// The levels of slots of the session, from the upper to the lowest one; none before the first
// make_slots(), which replaces them: tiles in the old ones move to the store.
bool slots_exist();
Slots& slots(size_t level);
std::vector<uint32_t> blocks_of_slots();
void make_slots(const std::vector<uint32_t>& blocks);

// Memory that temporaries of a planned program take beside slots: eager tasks leave it free.
void promise_ram(int64_t bytes);

// In the lowest store. bytes: at least those of the tile.
std::shared_ptr<Extent> new_extent(const Tile& tile, int64_t bytes);

// The tiles with homes.
struct HomeOf {
    Tile* tile;
    TilePlace at;
};
std::vector<HomeOf> homes();
TilePlace home_of_tile(const Tile& tile);       // in_store: also if it has none
bool is_in_store(const Tile& tile);             // whether its home is there
std::shared_ptr<Extent> extent_of(Tile& tile);  // of a tile with a home; created if needed
// The extent with the value of a tile at home that eager tasks cannot use there; null for others.
std::shared_ptr<Extent> stored_value(Tile& tile);
// Moves a tile's value home: from a slot into the store, or from anywhere else to `to`. Another
// tile may still be in the slot if its value is stored before.
void put_home(Tile& tile, const TilePlace& to);
// Planned tasks have moved the value. A tile without a home is one that they do not use and that
// eager tasks have brought from the store.
void move_home(Tile& tile, const TilePlace& to);
// Before planned tasks that use a tile outside slots. If it cannot be read, these tasks will fail.
void bring_to_memory(Tile& tile);
uint64_t tiles_brought_to_memory();  // so far, by any tasks; they have no home any more
// Submits a transfer between a slot of the lowest level and an extent. due: after how many more of
// the planned tasks of that level; the store carries out the transfer that is due first.
void submit_slot_transfer(bool loads, const TilePlace& place, const Tile& tile,
                          const std::shared_ptr<Extent>& extent, uint64_t due = 0);
// The same between a slot and one of the level below.
void submit_level_transfer(bool loads, const TilePlace& place, uint32_t slot_below,
                           const Tile& tile, uint64_t due = 0);
void count_planned_tasks(size_t level, uint64_t tasks);  // that were submitted

// Before eager tasks or host copies that use `needed`: runs the deferred tasks if they use these
// tiles, and moves others to the store until these fit into RAM: first those that have been in
// memory for the longest time.
void prepare_tiles(const std::vector<Tile*>& needed);

}  // namespace nn
