// Keeps a rank's part of a recorded program. The tasks of a shard (Program::shards) run on one
// rank; a task that changes a persistent tile runs on the owner of that tile; all others run where
// most of what they read is or, if the program has no shards, on every rank. A value that a task
// needs and its rank lacks is sent once. Every rank derives the same list of tasks and transfers
// from the same recording, and keeps its own.
//
// Between two runs each rank has every persistent tile except those that only owners keep: the
// optimizer's state and weights with Tile::only_owner. A rank that reads such a weight receives it
// into a buffer (copies.h), unless a buffer holds it already. Each rank gets every result of
// the program, so results need no further message outside of the program.
#pragma once
#include <cstdint>

#include "engine/graph/passes/owners.h"

namespace nn {

// choose_owners() comes before.
// first_tag: the lowest of its transfers' tags, of which no other transfer may use the next 2^32.
void distribute(Program& program, const RankOf& me, int64_t first_tag);
// A number that differs for programs with other tasks or tiles, for ranks to compare.
uint64_t fingerprint(Program& program);

}  // namespace nn
