// Submits the tasks that move tiles between ranks. A tile in a slot on a GPU passes through the
// mailbox, pinned RAM (runtime/slots.h). Main thread only.
#pragma once
#include "engine/graph/program.h"
#include "engine/runtime/handles.h"

namespace nn {

// slots: the handles of the slots of the task's tiles in planned memory (runtime/slots.h), null for
// tiles outside of slots. These handles have the bytes of the tiles.
void submit_rank_transfer(const Task& task, const StarpuHandle* slots = nullptr);

// The same if the first tile is in a slot on a GPU, with this memory.
void submit_through_mailbox(const Task& task, const StarpuHandle* slots, void* memory);
void make_mailbox(const Program& program);  // before these tasks of a program

}  // namespace nn
