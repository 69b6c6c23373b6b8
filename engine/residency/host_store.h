// RAM as the tier below a GPU's memory: pinned blocks, and copies that threads carry out on streams
// of their own, beside the kernels. Reads and writes have a link each.
#pragma once
#include <atomic>

#include "engine/memory/store.h"

namespace nn {

class HostStore : public Store {
public:
    // gpu: CUDA's number. bytes_per_second: in each direction at most; 0: no limit.
    explicit HostStore(int gpu, double bytes_per_second = 0);
    HostStore(const HostStore&) = delete;

    int64_t allocate(int64_t bytes, const std::string& what) override;
    void release(int64_t place, int64_t bytes) override;
    int64_t allocated_bytes() const override { return allocated_; }
    void read(int64_t place, void* to, int64_t bytes, uint64_t order, TransferName what,
              Transfer::Done done) override;
    void write(int64_t place, const void* from, int64_t bytes, uint64_t order, TransferName what,
               Transfer::Done done) override;
    TransferTotals totals() const override { return queue_.totals(); }

private:
    std::string carry_out(const Transfer& transfer) const;

    const int gpu_;
    std::atomic<int64_t> allocated_{0};
    TransferQueue queue_;
};

}  // namespace nn
