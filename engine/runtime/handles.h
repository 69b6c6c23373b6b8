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
// Holds a tile's value in RAM until it is destroyed. came() is called, on any thread, when all
// tasks submitted before are done with the tile, unless the request was dropped by then.
struct RamRequest;
struct DropRequest {
    void operator()(RamRequest* request) const;
};
using HeldTile = std::unique_ptr<RamRequest, DropRequest>;
HeldTile hold_in_ram(StarpuHandle handle, bool write, std::function<void()> came);
void forget_values(const std::unordered_set<StarpuHandle>& failed);  // of these handles' tiles
void drop_handles();  // of all tiles, whose values end: part of shutdown

}  // namespace nn
