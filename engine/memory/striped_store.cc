#include "engine/memory/striped_store.h"

#include <algorithm>
#include <utility>

#include "engine/memory/disk.h"

namespace nn {
namespace {

// What each piece calls when it is done. The last one calls `done`, with an error if there is one.
Transfer::Done when_all_are_done(size_t pieces, Transfer::Done done) {
    struct State {
        std::mutex mutex;
        size_t left;
        std::string error;
    };
    auto state = std::make_shared<State>();
    state->left = pieces;
    return [state, done = std::move(done)](const std::string& error) {
        {
            const std::lock_guard lock(state->mutex);
            if (state->error.empty()) state->error = error;
            if (--state->left > 0) return;
        }
        done(state->error);
    };
}

}  // namespace

StripedStore::StripedStore(std::vector<std::unique_ptr<Store>> stores)
    : stores_(std::move(stores)) {}

// Pieces of equal size, except that the last one may be smaller.
std::vector<StripedStore::Piece> StripedStore::cut(int64_t bytes) {
    const auto most = int64_t(stores_.size());
    const int64_t count = std::clamp<int64_t>(bytes / least_piece, 1, most);
    const int64_t piece = disk_bytes((bytes + count - 1) / count);
    const std::lock_guard lock(mutex_);
    std::vector<Piece> out;
    for (int64_t at = 0; at < bytes; at += piece) {
        out.push_back({next_, 0, std::min(piece, bytes - at)});
        next_ = (next_ + 1) % stores_.size();
    }
    return out;
}

void StripedStore::release_pieces(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) stores_[piece.store]->release(piece.place, piece.bytes);
}

int64_t StripedStore::allocate(int64_t bytes, const std::string& what) {
    std::vector<Piece> pieces;
    try {
        for (Piece piece : cut(bytes)) {
            piece.place = stores_[piece.store]->allocate(piece.bytes, what);
            pieces.push_back(piece);
        }
    } catch (...) {
        release_pieces(pieces);
        throw;
    }
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        free_.push_back(int64_t(places_.size()));
        places_.emplace_back();
    }
    const int64_t place = free_.back();
    free_.pop_back();
    places_[size_t(place)] = std::move(pieces);
    return place;
}

void StripedStore::release(int64_t place, int64_t) {
    std::vector<Piece> pieces;
    {
        const std::lock_guard lock(mutex_);
        pieces = std::exchange(places_[size_t(place)], {});
        free_.push_back(place);
    }
    release_pieces(pieces);
}

int64_t StripedStore::allocated_bytes() const {
    int64_t out = 0;
    for (const auto& store : stores_) out += store->allocated_bytes();
    return out;
}

std::vector<StripedStore::Piece> StripedStore::pieces_of(int64_t place, int64_t bytes) const {
    const std::lock_guard lock(mutex_);
    std::vector<Piece> out;
    for (Piece piece : places_[size_t(place)]) {
        piece.bytes = std::min(piece.bytes, bytes);
        bytes -= piece.bytes;
        if (piece.bytes > 0) out.push_back(piece);
    }
    return out;
}

void StripedStore::read(int64_t place, void* to, int64_t bytes, uint64_t order, TransferName what,
                        Transfer::Done done) {
    move({false, place, bytes, static_cast<char*>(to), order, std::move(what), std::move(done)});
}

void StripedStore::write(int64_t place, const void* from, int64_t bytes, uint64_t order,
                         TransferName what, Transfer::Done done) {
    move({true, place, bytes, const_cast<char*>(static_cast<const char*>(from)), order,
          std::move(what), std::move(done)});
}

void StripedStore::move(const Transfer& transfer) {
    const std::vector<Piece> pieces = pieces_of(transfer.place, transfer.bytes);
    const Transfer::Done done = when_all_are_done(pieces.size(), transfer.done);
    char* at = transfer.memory;
    for (const auto& [store, place, bytes] : pieces) {
        if (transfer.writes)
            stores_[store]->write(place, at, bytes, transfer.order, transfer.what, done);
        else
            stores_[store]->read(place, at, bytes, transfer.order, transfer.what, done);
        at += bytes;
    }
}

TransferTotals StripedStore::totals() const {
    TransferTotals out;
    for (const auto& store : stores_) {
        const TransferTotals of_one = store->totals();
        out.read += of_one.read, out.written += of_one.written;
        out.busy = std::max(out.busy, of_one.busy);
    }
    return out;
}

}  // namespace nn
