// Submits transfers of tiles between ranks. A tile in a slot on a GPU passes through a staging
// buffer (residency/slots.h). Main thread only.
#pragma once
#include "engine/graph/program.h"
#include "engine/workers/handles.h"

namespace nn {

// slots: the handles of the slots of the task's tiles in planned memory (residency/slots.h), null
// for tiles outside of slots. These handles have the bytes of the tiles.
void submit_rank_transfer(const Task& task, const StarpuHandle* slots = nullptr);

// Sends or receives a tile outside of plans.
void send_tile(Tile& tile, int to, int64_t tag);
void receive_tile(Tile& tile, int from, int64_t tag);

// As submit_rank_transfer() if the first tile is in a slot on a GPU, with this memory.
void submit_through_staging_buffer(const Task& task, const StarpuHandle* slots, void* memory);
void make_staging_buffer(const Program& program);  // before these tasks of a program

}  // namespace nn
