// What a cache that evicts the least recently used tiles would move, for comparison.
#include <list>

#include "engine/tiers/placement.h"

namespace nn {
namespace {

class LruCache {
public:
    LruCache(const Line& line, int64_t memory)
        : line_(line), free_(memory), entries_(line.tiles.size()) {}

    void use(uint32_t tile, Mode mode) {
        Entry& entry = entries_[tile];
        if (entry.in_memory) {
            order_.erase(entry.at);
        } else {
            make_room(line_.bytes_of(tile));
            if (mode != Mode::write) moved.loaded += line_.bytes_of(tile);
            free_ -= line_.bytes_of(tile);
        }
        entry = {order_.insert(order_.end(), tile), true,
                 mode != Mode::read || (entry.in_memory && entry.dirty)};
    }
    void drop(uint32_t tile) {  // its value is not needed any more
        if (!entries_[tile].in_memory) return;
        order_.erase(entries_[tile].at);
        free_ += line_.bytes_of(tile);
        entries_[tile].in_memory = false;
    }
    TransferBytes moved;

private:
    struct Entry {
        std::list<uint32_t>::iterator at;
        bool in_memory = false, dirty = false;
    };
    void make_room(int64_t bytes) {
        while (free_ < bytes && !order_.empty()) {
            const uint32_t oldest = order_.front();
            if (entries_[oldest].dirty) moved.stored += line_.bytes_of(oldest);
            drop(oldest);
        }
    }

    const Line& line_;
    int64_t free_;
    std::list<uint32_t> order_;  // the oldest first
    std::vector<Entry> entries_;
};

}  // namespace

TransferBytes lru_transfers(const Line& line, uint32_t blocks) {
    LruCache cache(line, blocks * slot_block);
    std::vector<uint32_t> last(line.tiles.size(), 0);
    for (uint32_t task = 0; task < line.accesses.tasks(); ++task)
        for (const auto* a = line.accesses.begin(task); a != line.accesses.end(task); ++a)
            last[a->tile] = task;
    constexpr int cycles = 3;
    for (int cycle = 0; cycle < cycles; ++cycle) {
        cache.moved = {};  // only the last run counts
        for (uint32_t task = 0; task < line.accesses.tasks(); ++task) {
            const auto begin = line.accesses.begin(task), end = line.accesses.end(task);
            for (const auto* a = begin; a != end; ++a)
                if (line.is_placed(a->tile)) cache.use(a->tile, a->mode);
            for (const auto* a = begin; a != end; ++a)
                if (last[a->tile] == task && !line.tiles[a->tile].after) cache.drop(a->tile);
        }
    }
    return cache.moved;
}

}  // namespace nn
