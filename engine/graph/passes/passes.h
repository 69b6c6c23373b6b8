// The passes over a recorded program, in the order in which they run. A new pass is a file beside
// this one and a line in passes.cc.
#pragma once
#include <vector>

#include "engine/graph/program.h"

namespace nn {

struct Pass {
    const char* name;
    void (*run)(Program&);
};
const std::vector<Pass>& passes();
void run_passes(Program& program);

void check_ends(Program& program);          // inputs and outputs belong to the recording
void check_arguments(Program& program);     // no task changes an input in place
void prune(Program& program);               // drops tasks whose results nobody uses
void fuse_epilogues(Program& program);      // activations' slopes into products
void check_values(Program& program);        // every temporary is written before it is read
void order_microbatches(Program& program);  // bounds how many are in memory at once
void find_lifetimes(Program& program);      // Program::dies_after, read_first, info
void set_priorities(Program& program);      // by the critical path
void find_teams(Program& program);          // Program::in_team

}  // namespace nn
