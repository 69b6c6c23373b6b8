// The passes over a recorded program. A new pass needs a file in this folder, a declaration here
// and a line in schedule/pipeline.cc, which says in which order they run.
#pragma once
#include "engine/graph/program.h"

namespace nn {

void check_ends(Program& program);          // inputs and outputs belong to the recording
void expand_loops(Program& program);        // for GPUs and ranks: see loops.h
void check_arguments(Program& program);     // no task changes an input in place
void prune(Program& program);               // drops tasks whose results nobody uses
void check_values(Program& program);        // every temporary is written before it is read
void fuse_epilogues(Program& program);      // slopes of activations, into products
void order_microbatches(Program& program);  // limits their number in memory at once
void find_lifetimes(Program& program);      // Program::dies_after, read_first, info
void set_priorities(Program& program);      // Task::priority
void find_teams(Program& program);          // Program::in_team
void dissolve_team(Program& program);       // undoes find_teams()

}  // namespace nn
