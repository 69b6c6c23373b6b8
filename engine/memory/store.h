// A lower tier of memory: where tiles of planned programs are that have no slot.
#pragma once
#include <cstdint>
#include <string>

#include "engine/memory/transfer_queue.h"

namespace nn {

class Store {
public:
    virtual ~Store() = default;

    // Reserves room for a tile. Throws Error if there is none. Any thread.
    virtual int64_t allocate(int64_t bytes, const std::string& what) = 0;
    virtual void release(int64_t place, int64_t bytes) = 0;
    virtual int64_t allocated_bytes() const = 0;

    // Begin a transfer to or from memory of the upper tier, or RAM. `done` is called on a thread
    // which it must not block. Among waiting transfers, the one with the lowest `order` is next.
    virtual void read(int64_t place, void* to, int64_t bytes, uint64_t order, TransferName what,
                      Transfer::Done done) = 0;
    virtual void write(int64_t place, const void* from, int64_t bytes, uint64_t order,
                       TransferName what, Transfer::Done done) = 0;
    virtual TransferTotals totals() const = 0;
};

}  // namespace nn
