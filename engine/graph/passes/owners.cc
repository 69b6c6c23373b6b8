#include "engine/graph/passes/owners.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace nn {
namespace {

// Of the persistent tiles that a task changes; 0: there are none.
size_t bytes_changed(const Task& task) {
    size_t out = 0;
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i) && task.tiles[i]->persists()) out += task.tiles[i]->bytes;
    return out;
}

size_t own(const Task& task, int owner, const RankOf& me) {
    size_t out = 0;
    for (int i = 0; i < task.handles; ++i) {
        if (!task.writes(i) || !task.tiles[i]->persists()) continue;
        Tile& tile = *task.tiles[i];
        if (tile.only_owner && tile.owner != owner)
            fail("compile: a task of %s changes tensors that different ranks keep", task.arg.op);
        if (tile.owner == nobody) out += tile.bytes;
        tile.owner = owner;
        if (is_owned(tile)) tile.keep_on(owner, owner == me.rank);
    }
    return out;
}

}  // namespace

int owner_of(const Task& task) {
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i) && task.tiles[i]->persists() && task.tiles[i]->owner != nobody)
            return task.tiles[i]->owner;
    return nobody;
}

void divide_changes(std::vector<Change> changes, int parts,
                    const std::function<int(const Task&)>& owner_of,
                    const std::function<size_t(const Task&, int)>& own) {
    std::ranges::stable_sort(changes, std::ranges::greater(), &Change::bytes);
    std::vector<size_t> load(size_t(parts), 0);
    for (const Change& change : changes) {
        int owner = owner_of(*change.task);  // an earlier one may change the same tile
        if (owner == nobody) owner = int(std::ranges::min_element(load) - load.begin());
        load[size_t(owner)] += own(*change.task, owner);
    }
}

int owner_of_new(size_t bytes, int ranks) {
    static std::vector<size_t> existing, planned;
    static uint32_t plan = 0;
    if (std::exchange(plan, recording_number()) != recording_number()) planned.clear();
    std::vector<size_t>& owned = plan ? planned : existing;
    owned.resize(size_t(ranks), 0);
    const auto least = std::ranges::min_element(owned);
    *least += bytes;
    return int(least - owned.begin());
}

void choose_owners(Program& program, const RankOf& me) {
    if (program.shards > 0 && program.shards < me.ranks)
        fail("compile: %d shards of the batch for %d ranks; each rank needs at least one",
             program.shards, me.ranks);
    std::vector<Change> open;
    for (const Task& task : program.tasks) {
        const size_t bytes = bytes_changed(task);
        if (bytes == 0) continue;
        if (task.shard >= 0)
            fail(
                "%s: changes a tensor that lasts, for one shard of the batch; several ranks "
                "cannot run it, because each would change it differently",
                task.arg.op);
        const int owner = owner_of(task);
        if (owner != nobody)
            own(task, owner, me);
        else if (program.shards > 0)  // else all ranks change it alike
            open.push_back({&task, bytes});
    }
    divide_changes(std::move(open), me.ranks, owner_of,
                   [&](const Task& task, int owner) { return own(task, owner, me); });
}

}  // namespace nn
