#include "engine/runtime/rank_transfers.h"

#include <algorithm>
#include <memory>

#include "engine/ranks/transport.h"
#include "engine/residency/homes.h"
#include "engine/runtime/rank_checks.h"
#include "engine/runtime/submit.h"
#include "engine/workers/waits.h"

namespace nn {
namespace {

// Calls move(handle) with a handle of exactly the tile's bytes, which a slot may exceed.
template <class F> void move_whole(Tile& tile, bool reads, F move) {
    prepare_tiles({&tile});
    const TilePlace at = home_of_tile(tile);
    if (!tile.handle || at == in_store) return move(handle_of(tile, reads));
    const uint32_t blocks = slot_blocks(int64_t(tile.bytes));
    move(slots(at.level).claim(at.slot, blocks, int64_t(tile.bytes)));
    slots(at.level).claim(at.slot, blocks);  // eager tasks use this handle
}

}  // namespace

void send_tile(Tile& tile, int to, int64_t tag) {
    move_whole(tile, true, [&](StarpuHandle handle) {
        rank_checks::send_sum(handle, tile_checks::value_of(tile), to, tag);
        transport::send(handle, tile.number, int64_t(tile.bytes), to, tag, 0);
    });
}

void receive_tile(Tile& tile, int from, int64_t tag) {
    move_whole(tile, false, [&](StarpuHandle handle) {
        transport::receive(handle, tile.number, int64_t(tile.bytes), from, tag);
        rank_checks::check_received(handle, tile_checks::next_value(tile), from, tag);
    });
    note_written(tile);
}

void submit_rank_transfer(const Task& task, const StarpuHandle* slots) {
    const bool sends = task.transfer == Task::Transfer::send;
    const auto handle = [&](int i, bool reads) {
        return slots && slots[i] ? slots[i] : handle_of(*task.tiles[i], reads);
    };
    Tile& tile = *task.tiles[0];
    const StarpuHandle value = handle(0, sends);
    if (sends) {
        rank_checks::send_sum(value, tile_checks::value_of(tile), task.peer, task.tag);
        transport::send(value, tile.number, int64_t(tile.bytes), task.peer, task.tag,
                        task.priority);
    } else {
        if (task.handles > 1) submit_order(value, handle(1, true));
        transport::receive(value, tile.number, int64_t(tile.bytes), task.peer, task.tag);
        rank_checks::check_received(value, tile_checks::next_value(tile), task.peer, task.tag);
        note_written(tile);
    }
}

void submit_through_staging_buffer(const Task& task, const StarpuHandle* slots, void* memory) {
    const Tile& tile = *task.tiles[0];
    const auto bytes = int64_t(tile.bytes);
    const StagingBuffer::Place place = staging_buffer()->next(bytes);
    StarpuHandle handles[max_handles];
    std::copy_n(slots, task.handles, handles);
    handles[0] = place.handle;
    const auto copy = [&](bool loads) {
        const auto in_ram = reinterpret_cast<int64_t>(place.memory);
        const TransferEnd below{pinned_ram(), in_ram, place.handle, {}};
        submit_transfer(
            {loads, slots[0], memory, bytes, below, 0, name_of(tile), tile_checks::value_of(tile)});
    };
    const bool sends = task.transfer == Task::Transfer::send;
    if (sends) copy(false);
    submit_rank_transfer(task, handles);
    if (!sends) copy(true);
}

void make_staging_buffer(const Program& program) {
    const int64_t bytes = staging_bytes(program);
    if (bytes == 0 || (staging_buffer() && staging_buffer()->bytes() >= bytes)) return;
    wait_for_tasks();
    staging_buffer().reset();
    staging_buffer() = std::make_unique<StagingBuffer>(bytes);
}

}  // namespace nn
