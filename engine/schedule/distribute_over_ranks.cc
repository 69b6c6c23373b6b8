#include "engine/schedule/distribute_over_ranks.h"

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/graph/passes/distribute.h"
#include "engine/machine/description.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/residency/tier_settings.h"
#include "engine/runtime/ranks.h"
#include "engine/tiers/order.h"

namespace nn {

static int ranks_of(const Program& program) {
    return program.is_plan ? machine().ranks : ranks().count;
}

static bool uses_weights_of_owners(const Program& program) {
    for (const Task& task : program.tasks)
        for (int i = 0; i < task.handles; ++i)
            if (const Tile& tile = *task.tiles[i];
                tile.only_owner && tile.kind == weights && tile.persists())
                return true;
    return false;
}

bool is_distributed(const Program& program) {
    if (ranks_of(program) == 1) return false;
    return program.shards > 0 || uses_weights_of_owners(program);
}

void check_equal_on_ranks(Program& program) {
    if (!is_distributed(program) || program.is_plan) return;
    const std::string mine = format("%016llx", (unsigned long long)fingerprint(program));
    const auto all = control::gather("a compiled function", mine, check_interrupt);
    for (size_t rank = 0; rank < all.size(); ++rank)
        if (all[rank] != all[0])
            fail(
                "compile: rank %zu recorded another program than rank 0. All ranks must run the "
                "same script: its shapes and numbers may not depend on the rank, the time, the "
                "order of pairs() or the host",
                rank);
}

static RankOf this_rank(const Program& program) { return {ranks().rank, ranks_of(program)}; }

// The owners in a plan are not those of tiles that exist.
static void need_planned_tiles(const Program& program) {
    for (const Task& task : program.tasks)
        for (int i = 0; i < task.handles; ++i)
            if (task.writes(i) && task.tiles[i]->persists() && !task.tiles[i]->is_planned)
                fail(
                    "%s: a plan for several ranks changes a tensor that exists; create the model "
                    "and the optimizer in the planned function",
                    task.arg.op);
}

void choose_owners_on_ranks(Program& program) {
    if (!is_distributed(program)) return;
    if (program.is_plan) need_planned_tiles(program);
    choose_owners(program, this_rank(program));
}

void order_for_ranks(Program& program) {
    if (!is_distributed(program) || !tiers().exist()) return;
    TaskOrder order = order_tasks(program, program.accesses(), {});
    order.body.insert(order.body.end(), order.deferred.begin(), order.deferred.end());
    // If it cannot, the order of the recording serves all ranks too.
    static_cast<void>(program.reorder(order.body));
    program.order_is_fixed = true;
}

void distribute_over_ranks(Program& program) {
    if (!is_distributed(program)) return;
    if (program.is_plan) program.whole = trial_of(program);
    distribute(program, this_rank(program), program.is_plan ? 0 : next_series());
}

void distribute_trial(Program& program) {
    if (is_distributed(program)) distribute(program, this_rank(program), 0);
}

void distribute_plan(Program& program, int rank) {
    distribute(program, {rank, ranks_of(program)}, 0);
}

}  // namespace nn
