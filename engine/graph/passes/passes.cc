#include "engine/graph/passes/passes.h"

#include "engine/base/progress.h"

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

void run_passes(Program& program, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
        still_working();
        passes()[i].run(program);
    }
}

}  // namespace

void run_passes(Program& program, const std::function<void(Program&)>& choose) {
    run_passes(program, 0, first_of_finish());
    if (choose) choose(program);
    finish(program);
}

void finish(Program& program) { run_passes(program, first_of_finish(), passes().size()); }

}  // namespace nn
