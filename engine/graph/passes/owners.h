// Maps of owners: which rank, or which GPU of it, changes each persistent tile. What only owners
// keep (Tile::only_owner) has a value nowhere else between two runs.
#pragma once
#include <functional>
#include <vector>

#include "engine/graph/program.h"

namespace nn {

struct RankOf {
    int rank, ranks;
};
constexpr int nobody = -1;

// Which of `parts`, ranks or GPUs, has a piece of the batch. Neighbouring pieces are together.
inline int part_of(int64_t piece, int64_t pieces, int parts) { return int(piece * parts / pieces); }

// A task that changes tiles with an owner, and the bytes of these tiles.
struct Change {
    const Task* task;
    size_t bytes;
};
// Divides changes evenly among `parts`: the largest come first, each for the part with the fewest
// bytes so far. owner_of: the owner of the task's tiles if one of them has an owner, or nobody.
// own(task, owner) makes it the owner of all, and returns the bytes of those that had none.
void divide_changes(std::vector<Change> changes, int parts,
                    const std::function<int(const Task&)>& owner_of,
                    const std::function<size_t(const Task&, int)>& own);

// The owner of a new tile of so many bytes, which only its owner will keep: the rank with the
// fewest such bytes so far. In a plan, only those of the plan count.
int owner_of_new(size_t bytes, int ranks);

// Sets Tile::owner of what tasks change that belong to no shard. Tiles that one task changes have
// one owner. All ranks choose alike.
void choose_owners(Program& program, const RankOf& me);

// Whether only the owner keeps the tile.
inline bool is_owned(const Tile& tile) {
    return tile.persists() && (tile.only_owner || tile.kind == optimizer_state);
}
// The owner of the persistent tiles that a task changes, or nobody.
int owner_of(const Task& task);

}  // namespace nn
