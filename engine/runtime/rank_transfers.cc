#include "engine/runtime/rank_transfers.h"

#include <algorithm>
#include <memory>

#include "engine/ranks/transport.h"
#include "engine/runtime/homes.h"
#include "engine/runtime/submit.h"
#include "engine/runtime/waits.h"

namespace nn {

void submit_rank_transfer(const Task& task, const StarpuHandle* slots) {
    const bool sends = task.transfer == Task::Transfer::send;
    const auto handle = [&](int i, bool reads) {
        return slots && slots[i] ? slots[i] : handle_of(*task.tiles[i], reads);
    };
    Tile& tile = *task.tiles[0];
    const StarpuHandle value = handle(0, sends);
    if (sends) {
        transport::send(value, int64_t(tile.bytes), task.peer, task.tag, task.priority);
    } else {
        if (task.handles > 1) submit_order(value, handle(1, true));
        transport::receive(value, int64_t(tile.bytes), task.peer, task.tag);
        note_written(tile);
    }
}

void submit_through_mailbox(const Task& task, const StarpuHandle* slots, void* memory) {
    const Tile& tile = *task.tiles[0];
    const auto bytes = int64_t(tile.bytes);
    const Mailbox::Place place = mailbox()->next(bytes);
    StarpuHandle handles[max_handles];
    std::copy_n(slots, task.handles, handles);
    handles[0] = place.handle;
    const auto copy = [&](bool loads) {
        const auto in_ram = reinterpret_cast<int64_t>(place.memory);
        const TransferEnd below{pinned_ram(), in_ram, place.handle, {}};
        submit_transfer({loads, slots[0], memory, bytes, below, 0, name_of(tile)});
    };
    const bool sends = task.transfer == Task::Transfer::send;
    if (sends) copy(false);
    submit_rank_transfer(task, handles);
    if (!sends) copy(true);
}

void make_mailbox(const Program& program) {
    const int64_t bytes = mailbox_bytes(program);
    if (bytes == 0 || (mailbox() && mailbox()->bytes() >= bytes)) return;
    wait_for_tasks();
    mailbox().reset();
    mailbox() = std::make_unique<Mailbox>(bytes);
}

}  // namespace nn
