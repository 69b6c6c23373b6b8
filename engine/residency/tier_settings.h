// The memory tiers of the process: their sizes, the stores below the slots, and the limits of
// plans. Main thread only.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/memory/store.h"
#include "engine/tiers/plan.h"

namespace nn {

// Memory with slots for tiles, and its bytes for them.
struct TierLevel {
    NodeKind kind;
    int64_t bytes;
};
// Programs run in the first level. What does not fit into a level is in the next one, and in the
// end in the store below all levels: a disk or, without one, RAM below a GPU's memory.
struct TierSettings {
    std::vector<TierLevel> levels;          // {RAM}, {GPU} or {GPU, RAM}; none: no tiers
    std::vector<std::string> disk_folders;  // several disks take a part of each tile
    double disk_rate = 0;                   // bytes per second of each at most; 0: no limit
    bool disk_in_ram = false;               // the folder may be a tmpfs or ramfs
    bool exist() const { return !levels.empty(); }
    bool on_gpu() const { return exist() && levels[0].kind == NodeKind::gpu; }
    bool has_disk() const { return !disk_folders.empty(); }
    int64_t bytes(NodeKind kind) const {  // of its level; 0: none
        for (const TierLevel& level : levels)
            if (level.kind == kind) return level.bytes;
        return 0;
    }
};
void set_tiers(const TierSettings& settings);  // with a GPU while StarPU runs; throws Error
const TierSettings& tiers();
bool tiers_were_chosen();  // in this process, even if there are none now
int64_t rest_of_gpu();     // bytes of the GPU's memory that slots leave to StarPU
// Before slots are made: takes the memory of those on a GPU from StarPU, once in a session.
void prepare_for_slots();

// The lowest tier, and pinned RAM below a GPU's memory, whose threads copy to and from the GPU.
// Without a disk, they are the same.
std::shared_ptr<Store> lowest_store();
std::shared_ptr<Store> pinned_ram();
void drop_stores();  // at the end of the session, after the slots

// Memory for eager tasks and for checkpoints beside compiled functions.
int64_t reserved_ram();
// Bytes of RAM through which tiles pass between slots on a GPU and other ranks.
int64_t staging_bytes(const Program& program);
// Bytes of RAM with which no tile of the program has to leave it, in whatever order workers run the
// tasks. Half of the reserve is among them: for eager tasks, and because a tile may be freed only
// after others were allocated.
int64_t ram_without_plan(const Program& program);
// Bytes of the disk that tiles may take, with those that they take already. A part of the free
// space is left to checkpoints and others, and ranks on this host share it. 0 if the disk is not
// that of the described machine.
int64_t disk_room();
void note_eager_tile(int64_t bytes);  // that eager tasks will use
PlanLimits tier_limits(const Program& program);
// Measures the disk for tier_limits() if no rate is set, once: about a second, 64 MB of RAM and up
// to 512 MB of the disk. If that fails, the rate stays nominal.
void measure_tier_disk();

struct StoreUse {
    int64_t bytes = 0;
    TransferTotals totals;
};
StoreUse use_of_disk();
StoreUse use_of_pinned_ram();

}  // namespace nn
