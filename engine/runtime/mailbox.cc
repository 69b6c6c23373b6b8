#include "engine/runtime/mailbox.h"

#include <algorithm>
#include <memory>

#include "engine/runtime/homes.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/waits.h"

namespace nn {
namespace {

struct Mailbox {
    std::unique_ptr<Slots> slots;
    uint32_t next = 0;  // block
};
// Never destroyed: tiles may be freed while the process ends.
Mailbox& state() {
    static auto* const instance = new Mailbox;
    return *instance;
}

uint32_t blocks_of(const Tile& tile) {
    return uint32_t((int64_t(tile.bytes) + slot_block - 1) / slot_block);
}

uint32_t blocks_for(const Program& program) {
    constexpr uint32_t at_once = 4;
    uint32_t largest = 0;
    for (const Task& task : program.tasks)
        if (task.transfer != Task::Transfer::none)
            largest = std::max(largest, blocks_of(*task.tiles[0]));
    return at_once * largest;
}

}  // namespace

int64_t mailbox_bytes(const Program& program) { return blocks_for(program) * slot_block; }

void make_mailbox(const Program& program) {
    const uint32_t blocks = blocks_for(program);
    Mailbox& mailbox = state();
    if (blocks == 0 || (mailbox.slots && mailbox.slots->blocks() >= blocks)) return;
    wait_for_tasks();
    mailbox.slots.reset();
    mailbox.slots = std::make_unique<Slots>(blocks, 0, true);
    mailbox.next = 0;
}

void drop_mailbox() { state().slots.reset(); }

void submit_through_mailbox(const Task& task, const StarpuHandle* handles, void* memory) {
    const Tile& tile = *task.tiles[0];
    const auto bytes = int64_t(tile.bytes);
    const uint32_t blocks = blocks_of(tile);
    Mailbox& mailbox = state();
    if (mailbox.next + blocks > mailbox.slots->blocks()) mailbox.next = 0;
    const uint32_t place = mailbox.next;
    mailbox.next += blocks;
    StarpuHandle in_ram[max_handles];
    std::copy_n(handles, task.handles, in_ram);
    in_ram[0] = mailbox.slots->claim(place, blocks, bytes);
    const auto copy = [&](bool loads) {
        const auto at = reinterpret_cast<int64_t>(mailbox.slots->memory(place));
        submit_transfer({loads,
                         handles[0],
                         memory,
                         bytes,
                         {pinned_ram(), at, in_ram[0], {}},
                         0,
                         name_of(tile)});
    };
    const bool sends = task.transfer == Task::Transfer::send;
    if (sends) copy(false);
    submit_rank_transfer(task, in_ram);
    if (!sends) copy(true);
}

}  // namespace nn
