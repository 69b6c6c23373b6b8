// Slots: parts of the memory of planned programs, each with a StarPU handle whose home it is, and
// the transfers between slots and what is below: a store, or slots of another level. A transfer is
// a task of the graph that occupies no worker: StarPU orders it by its handles, and a thread of the
// store carries it out.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/store.h"
#include "engine/tiers/placement.h"
#include "engine/tiers/slot_table.h"
#include "engine/workers/handles.h"
#include "engine/workers/tile_checks.h"

namespace nn {

// The place of a tile in a store. Its handle orders the transfers to and from it.
class Extent {
public:
    // what: the tile, for errors. Throws Error if the store is full.
    Extent(std::shared_ptr<Store> store, int64_t bytes, const std::string& what);
    ~Extent();
    Extent(const Extent&) = delete;
    StarpuHandle handle() const { return handle_; }
    const std::shared_ptr<Store>& store() const { return store_; }
    int64_t place() const { return place_; }

private:
    const std::shared_ptr<Store> store_;
    const int64_t bytes_, place_;
    StarpuHandle handle_ = nullptr;
};

TransferName name_of(const Tile& tile);  // for errors

class Slots {
public:
    // Allocates the memory on a memory node of StarPU; in RAM it also touches its pages. is_pinned:
    // in RAM, for copies to and from a GPU. Throws OutOfMemory.
    Slots(uint32_t blocks, int node, bool is_pinned = false);
    ~Slots();  // waits for the tasks that use it
    Slots(const Slots&) = delete;

    // The handle of a slot for the next task on it, which waits for earlier tasks on slots that
    // share its memory. bytes: of the handle, for messages to other ranks; 0: those of all blocks.
    StarpuHandle claim(uint32_t slot, uint32_t blocks, int64_t bytes = 0);
    char* memory(uint32_t slot) const { return memory_ + slot * slot_block; }
    uint32_t blocks() const { return blocks_; }
    bool in_ram() const { return node_ == 0; }
    int64_t bytes() const { return blocks_ * slot_block; }

private:
    void order_after(StarpuHandle slot, const std::vector<uint32_t>& others);

    void map_ram(bool is_pinned);
    void allocate_on_gpu();

    const uint32_t blocks_;
    const int node_;
    void* mapped_ = nullptr;  // with space for the alignment of memory_; RAM only
    bool is_pinned_ = false;
    char* memory_ = nullptr;
    SlotTable table_;
    std::vector<StarpuHandle> handles_;  // by number in the table
};

// Pinned RAM for tiles on their way between slots on a GPU and other ranks. Transfers use its
// places in turn; each waits, as a task, for the one that used its place before.
class StagingBuffer {
public:
    explicit StagingBuffer(int64_t bytes) : slots_(uint32_t(bytes / slot_block), 0, true) {}
    struct Place {
        StarpuHandle handle;
        char* memory;
    };
    Place next(int64_t bytes);
    int64_t bytes() const { return slots_.bytes(); }

private:
    Slots slots_;
    uint32_t block_ = 0;
};
std::unique_ptr<StagingBuffer>& staging_buffer();  // of the session; null if there is none

// The other end of a transfer: an extent of a store, or a slot of the level below, whose memory is
// the place in the store `pinned_ram`.
struct TransferEnd {
    std::shared_ptr<Store> store;
    int64_t place;
    StarpuHandle handle;
    std::shared_ptr<Extent> extent;  // kept until the transfer has ended; null for slots
};
TransferEnd end_in(const std::shared_ptr<Extent>& extent);

// Submits a transfer. order: see Store::read; what: the tile, for errors.
struct SlotTransfer {
    bool loads;
    StarpuHandle slot;
    void* memory;
    int64_t bytes;
    TransferEnd below;
    uint64_t order;
    TransferName what;
    tile_checks::Value value;
};
void submit_transfer(SlotTransfer transfer);
// Memory for reads and writes, whose pages leave the process with it: malloc would keep tens of
// megabytes.
struct UnmapBuffer {
    size_t bytes = 0;
    void operator()(char* memory) const;
};
using TransferBuffer = std::unique_ptr<char, UnmapBuffer>;
TransferBuffer transfer_buffer(size_t bytes);  // throws OutOfMemory
// Read an extent, or write one from any memory, and wait. Any thread. what, value: as above. They
// throw Error.
TransferBuffer read_now(const Extent& extent, size_t bytes, const TransferName& what,
                        tile_checks::Value value);
void write_now(const Extent& extent, const char* memory, size_t bytes, const TransferName& what,
               tile_checks::Value value);

}  // namespace nn
