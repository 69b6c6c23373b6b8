#pragma once
#include "engine/graph/program.h"

namespace nn {

// Keeps this rank's part of a program that splits its batch into shards or reads weights that only
// other ranks keep (graph/passes/distribute.h). Other programs run on every rank as a whole.
// Throws an Error if other ranks recorded another program.
void distribute_over_ranks(Program& program);

}  // namespace nn
