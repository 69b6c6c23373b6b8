#include "engine/graph/passes/owners.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace nn {
namespace {

// The persistent tile that a task changes, or null.
const Tile* changed_by(const Task& task) {
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i) && persists(*task.tiles[i])) return task.tiles[i].get();
    return nullptr;
}

void own(const Task& task, int owner, const RankOf& me) {
    for (int i = 0; i < task.handles; ++i) {
        if (!task.writes(i) || !persists(*task.tiles[i])) continue;
        Tile& tile = *task.tiles[i];
        if (tile.only_owner && tile.owner != owner)
            fail("compile: a task of %s changes tensors that different ranks keep", task.arg.op);
        tile.owner = owner;
        if (is_owned(tile)) tile.keep_on(owner, owner == me.rank);
    }
}

}  // namespace

int owner_of(const Task& task) {
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i) && persists(*task.tiles[i]) && task.tiles[i]->owner != nobody)
            return task.tiles[i]->owner;
    return nobody;
}

// The largest tiles come first, each to the rank with the fewest bytes so far.
void choose_owners(Program& program, const RankOf& me) {
    if (program.shards > 0 && program.shards < me.ranks)
        fail("compile: %d shards of the batch for %d ranks; each rank needs at least one",
             program.shards, me.ranks);
    std::vector<std::pair<size_t, const Task*>> open;  // bytes, task
    std::vector<size_t> load(size_t(me.ranks), 0);
    for (const Task& task : program.tasks) {
        const Tile* const tile = changed_by(task);
        if (!tile) continue;
        if (task.shard >= 0)
            fail(
                "%s: changes a tensor that lasts, for one shard of the batch; several ranks "
                "cannot run it, because each would change it differently",
                task.arg.op);
        const int owner = owner_of(task);
        if (owner != nobody)
            own(task, owner, me);
        else if (program.shards > 0)  // else all ranks change it alike
            open.push_back({tile->bytes, &task});
    }
    std::ranges::stable_sort(open, [](auto& a, auto& b) { return a.first > b.first; });
    for (const auto& [bytes, task] : open) {
        int owner = owner_of(*task);  // an earlier one of these may change the same tile
        if (owner == nobody) owner = int(std::ranges::min_element(load) - load.begin());
        load[size_t(owner)] += bytes;
        own(*task, owner, me);
    }
}

}  // namespace nn
