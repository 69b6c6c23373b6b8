// Homes of persistent tiles whose memory is planned: a slot, or an extent of the store. Between two
// runs of planned programs, such a tile is at home. Eager tasks use the handle of its slot in RAM,
// or bring it from the store into memory that StarPU manages; the next run of a planned program
// puts it back. Slots on a GPU are only for planned tasks, because transfers bypass StarPU's copies
// of a slot on other memory nodes. Main thread only.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/slots.h"
#include "engine/tiers/plan.h"

namespace nn {

// Programs run in the memory of the upper tier: RAM above a disk, or a GPU's memory above RAM.
struct TierSettings {
    int64_t ram = 0;          // bytes for tiles, above a disk
    std::string disk_folder;  // for the rest
    double disk_rate = 0;     // bytes per second at most; 0: no limit
    int64_t gpu = 0;          // bytes for tiles of a GPU's memory, above RAM
    bool exist() const { return ram > 0 || gpu > 0; }
};
void set_tiers(const TierSettings& settings);  // with a GPU while StarPU runs; throws Error
const TierSettings& tiers();
int64_t rest_of_gpu();  // bytes of the GPU's memory that slots leave to StarPU
struct TierUse {
    int64_t slots = 0, store = 0;  // bytes
    TransferTotals totals;         // of the store's transfers
};
TierUse tier_use();
void drop_tiers();  // at the end of the session, after the tiles' storages

// The slots of the session, or null. make_slots() replaces them; tiles in the old ones move to
// the store.
Slots* slots();
void make_slots(uint32_t blocks);

// Memory for eager tasks and for checkpoints beside planned programs. largest: bytes of a tile that
// eager tasks will use.
int64_t reserved_ram(int64_t largest = 0);
PlanLimits tier_limits();
// Measures the disk for tier_limits() if no rate is set, once: about a second, 64 MB of RAM and up
// to 512 MB of the disk. If that fails, the rate stays nominal.
void measure_tier_disk();
// Memory that temporaries of a planned program take beside slots: eager tasks leave it free.
void promise_ram(int64_t bytes);

TransferName name_of(const Tile& tile);  // for errors
std::shared_ptr<Extent> new_extent(const Tile& tile);

// The tiles with homes, and the first blocks of their slots; no_slot: on disk.
struct HomeOf {
    Tile* tile;
    uint32_t slot;
};
std::vector<HomeOf> homes();
uint32_t home_slot(const Tile& tile);           // no_slot: none, or on disk
bool is_in_store(const Tile& tile);             // whether its home is there
std::shared_ptr<Extent> extent_of(Tile& tile);  // of a tile with a home; created if needed
// The extent with the value of a tile at home that eager tasks cannot use there; null for others.
std::shared_ptr<Extent> stored_value(Tile& tile);
// Moves a tile's value home: into the slot, or to the disk. Another tile may still be in the slot
// if its value is stored before.
void put_home(Tile& tile, uint32_t slot);
// Planned tasks have moved the value. A tile without a home is one that they do not use and that
// eager tasks have brought from the disk.
void move_home(Tile& tile, uint32_t slot);
// Before planned tasks that use a tile outside slots. If it cannot be read, these tasks will fail.
void bring_to_memory(Tile& tile);
uint64_t tiles_brought_to_memory();  // so far, by any tasks; they have no home any more
// Submits a transfer between a slot and an extent. due: after how many more of the planned tasks;
// the disk carries out the transfer that is due first.
void submit_slot_transfer(bool loads, uint32_t slot, const Tile& tile,
                          const std::shared_ptr<Extent>& extent, uint64_t due = 0);
void count_planned_tasks(uint64_t tasks);  // that were submitted

// Before eager tasks or host copies that use `needed`: runs the deferred tasks if they use these
// tiles, and moves others to the disk until these fit into RAM: first those that have been in
// memory for the longest time.
void prepare_tiles(const std::vector<Tile*>& needed);

}  // namespace nn
