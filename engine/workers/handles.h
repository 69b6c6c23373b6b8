// StarPU's handles of tiles. A handle is registered when a task first needs it, and StarPU
// allocates its memory at the first write.
#pragma once
#include <functional>
#include <memory>
#include <unordered_set>

#include "engine/tile/tile.h"

struct _starpu_data_state;

namespace nn {

using StarpuHandle = _starpu_data_state*;

// The storage of a tile while StarPU runs. All storages are known, so that a shutdown ends them.
class StoredTile : public TileStorage {
public:
    explicit StoredTile(Tile& tile);
    ~StoredTile() override;
    StarpuHandle handle() const { return static_cast<StarpuHandle>(tile.handle); }
    virtual bool failed(const std::unordered_set<StarpuHandle>& handles) const;
    // Gives the tile a handle, and its value if the next task reads it. May replace the storage.
    virtual void fetch(bool) {}
    virtual void drop() = 0;                          // drops the value
    virtual bool in_memory() const { return false; }  // in memory that StarPU manages
    Tile& tile;
    const uint64_t number;  // counts the storages
    // A copy of the value on disk, valid while the tile's version is this one.
    std::shared_ptr<void> copy;
    uint32_t copy_version = 0;
};
// Before a task, or a host copy, changes a tile that has a handle.
inline void outdate_copy(const Tile& tile) {
    static_cast<StoredTile&>(*tile.storage).copy_version = tile.version - 1;
}
const std::unordered_set<StoredTile*>& stored_tiles();
int64_t bytes_in_memory();  // of the blocks of persistent tiles that StarPU manages

StarpuHandle handle_of(Tile& tile, bool reads = true);  // while StarPU runs; see fetch()
StarpuHandle new_handle(Tile& tile);                    // replaces the tile's storage
void forget_storage(Tile& tile);                        // after the tasks submitted so far
bool is_valid_on(const Tile& tile, int node);           // whether a memory node holds the value
// Keeps a tile's value in RAM until the HeldTile is destroyed. When all earlier tasks are done with
// the tile, calls notify() on any thread, unless the HeldTile was destroyed before.
struct RamRequest;
struct DropRequest {
    void operator()(RamRequest* request) const;
};
using HeldTile = std::unique_ptr<RamRequest, DropRequest>;
HeldTile hold_in_ram(StarpuHandle handle, bool write, std::function<void()> notify);
bool lacks_memory(StarpuHandle handle);  // whether StarPU found no RAM for it (memory/arena.h)
void mark_failed(const std::unordered_set<StarpuHandle>& handles);  // sets Tile::value
void drop_handles();  // of all tiles, which lose their values; part of shutdown

}  // namespace nn
