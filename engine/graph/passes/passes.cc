#include "engine/graph/passes/passes.h"

namespace nn {

const std::vector<Pass>& passes() {
    static const std::vector<Pass> all = {
        {"check ends", check_ends},
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

void run_passes(Program& program) {
    for (const Pass& pass : passes()) pass.run(program);
}

}  // namespace nn
