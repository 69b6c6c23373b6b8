#include "engine/graph/passes/passes.h"

namespace nn {

const std::vector<Pass>& passes() {
    static const std::vector<Pass> all = {
        {"check ends", check_ends},
        {"expand loops", expand_loops},
        {"check arguments", check_arguments},
        {"prune", prune},
        {"check values", check_values},
        {"fuse epilogues", fuse_epilogues},
        {"order microbatches", order_microbatches},
        {"find lifetimes", find_lifetimes},
        {"set priorities", set_priorities},
        {"find teams", find_teams},
    };
    return all;
}

namespace {

size_t first_of_finish() {
    size_t i = 0;
    while (passes()[i].run != order_microbatches) ++i;
    return i;
}

}  // namespace

void run_passes(Program& program, const std::function<void(Program&)>& choose) {
    for (size_t i = 0; i < first_of_finish(); ++i) passes()[i].run(program);
    if (choose) choose(program);
    finish(program);
}

void finish(Program& program) {
    for (size_t i = first_of_finish(); i < passes().size(); ++i) passes()[i].run(program);
}

}  // namespace nn
