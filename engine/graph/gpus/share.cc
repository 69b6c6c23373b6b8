// Temporaries that take each other's memory. StarPU runs two tasks to free the memory of one tile,
// and allocates it again at the next write.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_set>

#include "engine/graph/gpus/gpus.h"
#include "engine/memory/arena.h"

namespace nn {
namespace {

class Sharing {
public:
    explicit Sharing(Program& program) : program_(program), accesses_(program.accesses()) {
        for (const auto* tensors : {&program.inputs, &program.outputs})
            for (const TilePtr& tile : tiles_of(*tensors)) kept_.insert(tile.get());
        last_use_.resize(accesses_.tiles);
        for (uint32_t t = 0; t < accesses_.tasks(); ++t)
            for (const auto* a = accesses_.begin(t); a != accesses_.end(t); ++a)
                last_use_[a->tile] = t;
        now_.resize(accesses_.tiles);
        most_ = peak();
    }

    void run() {
        for (uint32_t t = 0; t < accesses_.tasks(); ++t) {
            Task& task = program_.tasks[t];
            for (int i = 0; i < task.handles; ++i) replace(task, i, number(t, i));
            for (int i = 0; i < task.handles; ++i)
                if (is_temporary(original_[size_t(i)]) && last_use_[number(t, i)] == t)
                    give_back(now_[number(t, i)], key_of(task, *now_[number(t, i)]));
        }
        program_.tasks_changed();
    }

private:
    // GPU, bytes and kind: the memory is on that GPU, and reports count tiles by kind.
    using Key = std::tuple<int, size_t, int>;
    static Key key_of(const Task& task, const Tile& tile) {
        return {task.gpu, tile.bytes, tile.kind};
    }
    static int64_t block(const Tile& tile) { return int64_t(arena_bytes(tile.bytes)); }

    uint32_t number(uint32_t t, int i) const { return accesses_.begin(t)[i].tile; }
    bool is_temporary(const TilePtr& tile) const {
        return !tile->persists() && !kept_.count(tile.get());
    }

    // Of the temporaries, in the order of submission.
    int64_t peak() const {
        std::vector<char> alive(accesses_.tiles, 0);
        int64_t live = 0, most = 0;
        for (uint32_t t = 0; t < accesses_.tasks(); ++t) {
            const Task& task = program_.tasks[t];
            for (int i = 0; i < task.handles; ++i)
                if (is_temporary(task.tiles[i]) && !alive[number(t, i)])
                    alive[number(t, i)] = 1, live += block(*task.tiles[i]);
            most = std::max(most, live);
            for (int i = 0; i < task.handles; ++i)
                if (is_temporary(task.tiles[i]) && last_use_[number(t, i)] == t)
                    live -= block(*task.tiles[i]);
        }
        return most;
    }

    void replace(Task& task, int i, uint32_t tile) {
        original_[size_t(i)] = task.tiles[i];
        if (!is_temporary(task.tiles[i])) return;
        TilePtr& now = now_[tile];
        if (!now) {
            now = task.modes[i] == Mode::write ? take(task, task.tiles[i]) : task.tiles[i];
            if (now == task.tiles[i]) add(block(*now));
        }
        task.tiles[i] = now;
    }

    // The block that has been free for the longest time, so that tasks rarely wait for its last
    // readers.
    TilePtr take(const Task& task, const TilePtr& tile) {
        auto& free = free_[key_of(task, *tile)];
        if (free.empty()) return tile;
        const TilePtr out = free.front();
        free.pop_front();
        return out;
    }

    void give_back(const TilePtr& tile, const Key& key) { free_[key].push_back(tile); }

    // Free blocks count as long as they are kept. Beyond the peak, some are kept no longer.
    void add(int64_t bytes) {
        held_ += bytes;
        for (auto& [key, free] : free_)
            while (held_ > most_ && !free.empty()) {
                held_ -= block(*free.front());
                free.pop_front();
            }
    }

    Program& program_;
    const Accesses accesses_;
    std::unordered_set<const Tile*> kept_;
    std::vector<uint32_t> last_use_;
    std::vector<TilePtr> now_;  // by which tile each is replaced; null before its first use
    TilePtr original_[max_handles];
    std::map<Key, std::deque<TilePtr>> free_;
    int64_t held_ = 0, most_ = 0;
};

}  // namespace

void share_memory(Program& program) { Sharing(program).run(); }

}  // namespace nn
