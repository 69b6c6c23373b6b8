// Slots: parts of the memory of planned programs, each with a StarPU handle whose home it is, and
// the transfers between slots and the store below: the disk, or RAM below a GPU. A transfer is a
// task of the graph that occupies no worker: StarPU orders it by its handles, and a thread of the
// store carries it out.
#pragma once
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/store.h"
#include "engine/runtime/handles.h"
#include "engine/tiers/placement.h"
#include "engine/tiers/slot_table.h"

namespace nn {

// The place of a tile in a store. Its handle orders the transfers to and from it.
class Extent {
public:
    // what: the tile, for errors. Throws Error if the store is full.
    Extent(std::shared_ptr<Store> store, int64_t bytes, const std::string& what);
    ~Extent();
    Extent(const Extent&) = delete;
    StarpuHandle handle() const { return handle_; }
    Store& store() const { return *store_; }
    int64_t place() const { return place_; }

private:
    const std::shared_ptr<Store> store_;
    const int64_t bytes_, place_;
    StarpuHandle handle_ = nullptr;
};

class Slots {
public:
    // Allocates the memory on a memory node of StarPU; in RAM it also touches its pages. Throws
    // OutOfMemory.
    Slots(uint32_t blocks, int node);
    ~Slots();  // waits for the tasks that use it
    Slots(const Slots&) = delete;

    // The handle of a slot for the next task on it, which waits for earlier tasks on slots that
    // share its memory.
    StarpuHandle claim(uint32_t slot, uint32_t blocks);
    char* memory(uint32_t slot) const { return memory_ + slot * slot_block; }
    uint32_t blocks() const { return blocks_; }
    bool in_ram() const { return node_ == 0; }
    int64_t bytes() const { return blocks_ * slot_block; }

private:
    void order_after(StarpuHandle slot, const std::vector<uint32_t>& others);

    void map_ram();
    void allocate_on_gpu();

    const uint32_t blocks_;
    const int node_;
    void* mapped_ = nullptr;  // with space for the alignment of memory_; RAM only
    char* memory_ = nullptr;
    SlotTable table_;
    std::vector<StarpuHandle> handles_;  // by number in the table
};

// Submits a transfer. order: see Store::read; what: the tile, for errors.
struct SlotTransfer {
    bool loads;
    StarpuHandle slot;
    void* memory;
    int64_t bytes;
    std::shared_ptr<Extent> extent;
    uint64_t order;
    TransferName what;
};
void submit_transfer(SlotTransfer transfer);
// Reads an extent, or writes one from any memory, and waits. Any thread. what: as above. Throws
// Error.
using TransferBuffer = std::unique_ptr<char, decltype(&std::free)>;
TransferBuffer read_now(const Extent& extent, size_t bytes, const TransferName& what);
void write_now(const Extent& extent, const char* memory, size_t bytes, const TransferName& what);

}  // namespace nn
