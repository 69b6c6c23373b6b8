#include "engine/schedule/pipeline.h"

#include <span>

#include "engine/base/interrupts.h"
#include "engine/graph/passes/passes.h"
#include "engine/machine/description.h"
#include "engine/machine/ranks.h"
#include "engine/plan/plan.h"
#include "engine/residency/homes.h"
#include "engine/schedule/choose_activations.h"
#include "engine/schedule/choose_ways.h"
#include "engine/schedule/distribute_over_ranks.h"
#include "engine/schedule/group_on_cpus.h"
#include "engine/schedule/needs_plan.h"

namespace nn {
namespace {

using Pass = void (*)(Program&);

void run(std::span<const Pass> passes, Program& program) {
    for (const Pass pass : passes) {
        check_interrupt();
        pass(program);
    }
}

// What follows the choices, on a copy on which one is tried.
void place_trial(Program& program) {
    order_for_ranks(program);
    distribute_trial(program);
    schedule_tasks(program);
}

// What was recorded: it makes sense, and every task is needed.
constexpr Pass checks[] = {
    check_ends,       // inputs and outputs belong to the recording
    expand_loops,     // of microbatches, for GPUs and ranks
    check_arguments,  // no task changes an input in place
    prune,            // drops tasks whose results nobody uses
    check_values,     // every temporary is written before it is read
    check_equal_on_ranks,
};
// What is computed.
constexpr Pass choices[] = {
    choose_owners_on_ranks,  // which rank changes each weight
    fuse_epilogues,          // slopes of activations, into products
    choose_product_ways,     // which library computes each product
    // computes again what there is no memory to keep
    [](Program& program) { choose_activations(program, place_trial); },
};
// Where: on which rank.
constexpr Pass places[] = {
    check_equal_on_ranks,   // choices may depend on the host
    order_for_ranks,        // with memory tiers, ranks wait for each other in one order
    distribute_over_ranks,  // keeps this rank's tasks, and adds transfers
};
// When, and until when memory is needed.
constexpr Pass order[] = {
    order_microbatches,  // limits how many are in memory at once
    find_lifetimes,      // which task uses a temporary last, and the bytes of a run
    set_priorities,      // by the critical path
    find_teams,          // whether all workers share the loops of single tasks
};

// Plans of memory tiers (tiers/plan.h) use the times of the tasks.
void time_tasks(Program& program) {
    if (tiers().exist() && needs_plan(program)) program.seconds = placement_seconds(program);
}

}  // namespace

void prepare(Program& program) {
    run(checks, program);
    run(choices, program);
    run(places, program);
    schedule_tasks(program);
    time_tasks(program);
}

void schedule_tasks(Program& program) { run(order, program); }

std::vector<std::unique_ptr<Program>> parts_of_others(const Program& plan) {
    std::vector<std::unique_ptr<Program>> out;
    for (int rank = 0; plan.whole && rank < machine().ranks; ++rank) {
        if (rank == ranks().rank) continue;
        check_interrupt();
        out.push_back(trial_of(*plan.whole));
        distribute_plan(*out.back(), rank);
        schedule_tasks(*out.back());
    }
    return out;
}

void prepare_for_tiers(Program& program) {
    dissolve_team(program);  // its tasks and transfers would wait for each other
}

std::vector<TaskGroup> prepare_for_gpus(Program& program, int gpus, int64_t memory) {
    dissolve_team(program);        // GPUs do not share the loops of tasks
    place_on_gpus(program, gpus);  // the tasks of a tile of tokens run on one of them
    delay_sums(program);           // of gradients, behind the other tasks of a layer
    share_memory(program);         // temporaries take that of earlier ones
    find_lifetimes(program);       // the order and the tiles have changed
    // The tiles of a group are on a GPU at once, so larger groups need more memory.
    const auto groups_of = [&](int64_t bytes) {
        return group_tasks(program, {.bytes = bytes}, memory / 16);
    };
    std::vector<TaskGroup> largest = groups_of(memory / 8);
    if (peak_on_a_gpu(largest) <= memory) return largest;
    for (const int64_t part : {16, 32, 64, 128})
        if (auto groups = groups_of(memory / part); peak_on_a_gpu(groups) <= memory) return groups;
    return largest;
}

std::vector<TaskGroup> prepare_for_cpus(Program& program, int workers) {
    if (!can_group_on_cpus(program)) return {};
    place_on_gpus(program, workers);  // as if each worker were a GPU
    std::vector<TaskGroup> out = group_on_cpus(program, workers);
    forget_places(program);
    return out;
}

}  // namespace nn
