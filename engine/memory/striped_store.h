// Several stores as one, such as disks. Each has a piece of every large tile, and they move their
// pieces at the same time.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "engine/memory/store.h"

namespace nn {

class StripedStore : public Store {
public:
    // Disks move smaller pieces at a lower rate, so smaller tiles have fewer of them.
    static constexpr int64_t least_piece = int64_t(256) << 10;

    explicit StripedStore(std::vector<std::unique_ptr<Store>> stores);  // two or more

    int64_t allocate(int64_t bytes, const std::string& what) override;
    void release(int64_t place, int64_t bytes) override;
    int64_t allocated_bytes() const override;
    void read(int64_t place, void* to, int64_t bytes, uint64_t order, TransferName what,
              Transfer::Done done) override;
    void write(int64_t place, const void* from, int64_t bytes, uint64_t order, TransferName what,
               Transfer::Done done) override;
    TransferTotals totals() const override;  // busy: of the store that was busy for longest

private:
    struct Piece {
        size_t store;
        int64_t place, bytes;
    };
    std::vector<Piece> cut(int64_t bytes);  // places are not set
    void release_pieces(const std::vector<Piece>& pieces);
    // Those of the first `bytes`.
    std::vector<Piece> pieces_of(int64_t place, int64_t bytes) const;
    void move(const Transfer& transfer);

    const std::vector<std::unique_ptr<Store>> stores_;
    mutable std::mutex mutex_;
    size_t next_ = 0;                         // the store of the next first piece
    std::vector<std::vector<Piece>> places_;  // by place
    std::vector<int64_t> free_;               // places without pieces
};

}  // namespace nn
