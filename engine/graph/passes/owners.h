// The map of owners: which rank changes each persistent tile, and keeps what only its owner keeps.
#pragma once
#include "engine/graph/program.h"

namespace nn {

struct RankOf {
    int rank, ranks;
};
constexpr int nobody = -1;

// Sets Tile::owner of what tasks change that belong to no shard. Tiles that one task changes have
// one owner. All ranks choose alike.
void choose_owners(Program& program, const RankOf& me);

inline bool persists(const Tile& tile) { return tile.recording == 0; }
// Whether only the owner keeps the tile.
inline bool is_owned(const Tile& tile) {
    return persists(tile) && (tile.only_owner || tile.kind == optimizer_state);
}
// The owner of the persistent tiles that a task changes, or nobody.
int owner_of(const Task& task);

}  // namespace nn
