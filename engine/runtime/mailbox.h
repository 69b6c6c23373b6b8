// RAM for tiles on their way between slots on a GPU and other ranks. Main thread only.
#pragma once
#include <cstdint>

#include "engine/graph/program.h"
#include "engine/runtime/handles.h"

namespace nn {

// Bytes for some of the largest tiles that a program sends or receives; 0 if there are none.
int64_t mailbox_bytes(const Program& program);
void make_mailbox(const Program& program);  // before its tasks, if they use slots on a GPU
void drop_mailbox();                        // at the end of the session, before the stores
// A task that moves a tile between ranks, which has a slot on a GPU. handles: of all its tiles.
// memory: of the slot.
void submit_through_mailbox(const Task& task, const StarpuHandle* handles, void* memory);

}  // namespace nn
