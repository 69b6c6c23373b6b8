#include "engine/graph/same_tasks.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "engine/graph/scalars.h"

namespace nn {
namespace {

class Comparison {
public:
    Comparison(const RecordedTasks& first, const RecordedTasks& second)
        : created_(first.tiles),
          created_later_(second.tiles),
          randoms_(second.randoms - first.randoms) {}

    bool same(const Task& a, const Task& b) {
        return same_call(a.arg, b.arg) && same_params(a, b) && a.handles == b.handles &&
               a.where == b.where && a.shard == b.shard && same_tiles(a, b);
    }

private:
    static bool same_call(const TaskArg& a, const TaskArg& b) {
        const auto same = [](const auto* x, const auto* y, auto n) {
            return std::equal(x, x + n, y);
        };
        return a.kernel == b.kernel && std::strcmp(a.op, b.op) == 0 &&
               std::strcmp(a.layer, b.layer) == 0 && a.dtype == b.dtype && a.tile == b.tile &&
               a.rank == b.rank && same(a.extent, b.extent, a.rank) && a.operands == b.operands &&
               same(a.buffer_of, b.buffer_of, a.operands);
    }

    // Scalars by what they are, since those in the params are values of the time of recording.
    bool same_params(const Task& a, const Task& b) const {
        if (a.patches.size() != b.patches.size()) return false;
        TaskArg x = a.arg, y = b.arg;
        shift_random_keys(a, &x, randoms_);
        for (size_t i = 0; i < a.patches.size(); ++i) {
            const Patch &p = a.patches[i], &q = b.patches[i];
            if (p.kind != q.kind || p.offset != q.offset) return false;
            if (p.kind == Patch::scalar && !same_computation(p.scalar_id, q.scalar_id))
                return false;
        }
        return std::memcmp(x.params, y.params, max_params) == 0;
    }

    bool same_tiles(const Task& a, const Task& b) {
        for (int i = 0; i < a.handles; ++i) {
            const Tile *const x = a.tiles[i].get(), *const y = b.tiles[i].get();
            if (a.modes[i] != b.modes[i]) return false;
            if (x->number <= created_) {
                if (x != y) return false;
            } else if (y->number <= created_later_ || other_.emplace(x, y).first->second != y) {
                return false;
            }
        }
        return true;
    }

    const uint64_t created_, created_later_, randoms_;
    std::unordered_map<const Tile*, const Tile*> other_;  // of those that the first one creates
};

}  // namespace

bool same_tasks(const std::vector<Task>& tasks, const RecordedTasks& first,
                const RecordedTasks& second) {
    if (first.end - first.begin != second.end - second.begin) return false;
    Comparison comparison(first, second);
    for (size_t t = first.begin, u = second.begin; t < first.end; ++t, ++u)
        if (!comparison.same(tasks[t], tasks[u])) return false;
    return true;
}

}  // namespace nn
