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

StarpuHandle handle_of(Tile& tile);            // while StarPU runs
bool is_valid_on(const Tile& tile, int node);  // whether a memory node holds the value
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
