// The passes over a recorded program, in the order in which they run. A new pass needs a file in
// this folder, a declaration here and a line in passes.cc.
#pragma once
#include <functional>
#include <vector>

#include "engine/graph/program.h"

namespace nn {

struct Pass {
    const char* name;
    void (*run)(Program&);
};
const std::vector<Pass>& passes();
// choose: chooses the activations to recompute (recompute.h), before the passes of finish().
void run_passes(Program& program, const std::function<void(Program&)>& choose = {});
// The passes that depend on the final list of tasks: those from order_microbatches() on.
void finish(Program& program);

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

}  // namespace nn
