#include "engine/schedule/choose_activations.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/graph/context.h"
#include "engine/graph/passes/recompute.h"
#include "engine/machine/description.h"
#include "engine/machine/host.h"
#include "engine/machine/ranks.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"
#include "engine/plan/plan.h"
#include "engine/ranks/control.h"
#include "engine/residency/homes.h"
#include "engine/schedule/distribute_over_ranks.h"
#include "engine/schedule/needs_plan.h"
#include "engine/tiers/search_time.h"
#include "engine/tiers/store_places.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

Activation setting = Activation::choose;

// A choice and what follows it, on a copy.
struct Trials {
    const Program& program;
    const Recomputation& recomputation;
    void (*const place_trial)(Program&);

    std::unique_ptr<Program> with(size_t count) const {
        std::unique_ptr<Program> out = trial_of(program);
        recomputation.apply(*out, count);
        place_trial(*out);
        return out;
    }
    size_t options() const { return recomputation.options().size(); }
};

// The bytes of the program's tiles: of all, of those that exist and so were admitted before, and of
// those that would last if a plan became true.
struct TileBytes {
    int64_t all = 0, admitted = 0, lasting = 0, count = 0;
};
TileBytes tile_bytes(const Program& program) {
    TileBytes out;
    std::unordered_set<const Tile*> seen;
    const auto add = [&](const Tile& tile) {
        if (!seen.insert(&tile).second) return;
        const auto bytes = int64_t(arena_bytes(tile.bytes));
        out.all += bytes;
        if (tile.persists()) (tile.is_planned ? out.lasting : out.admitted) += bytes;
        ++out.count;
    };
    for (const Task& task : program.tasks)
        for (int i = 0; i < task.handles; ++i) add(*task.tiles[i]);
    for (const auto* tensors : {&program.inputs, &program.outputs})
        for (const TilePtr& tile : tiles_of(*tensors)) add(*tile);
    return out;
}

// Whether so many bytes of tiles fit, in place of those that were admitted before.
bool has_room(int64_t bytes, const TileBytes& tiles, bool is_plan) {
    int64_t more = tiles.lasting + tiles.count * handle_bytes;
    if (is_plan && machine_is_described()) more -= machine().bytes(NodeKind::ram) - budget();
    const int64_t temporaries = bytes - tiles.admitted - tiles.lasting,
                  on_gpus = tile_bytes_on_gpus(machine());
    // What does not fit on GPUs is refused later (Replay::check_memory_of_gpus).
    const int64_t on_each = tiles.admitted + temporaries / std::max(1, gpus_in_use());
    if (!is_plan && on_gpus > 0 && !gpu_memory_is_chosen() && on_each > on_gpus) return false;
    return fits_with_gpus(temporaries, on_gpus - tiles.lasting, more);
}

// The largest sum of the bytes of tiles during a run.
int64_t simulated_peak(const Program& trial) {
    constexpr double submission = 3e-6;
    const Simulation simulation(simulated_step({&trial}, {}), 3);
    const int workers = trial.in_team ? 1 : machine().count(Device::cpu);
    return std::max<int64_t>(simulation.run(workers, submission).front().peak,
                             plan({&trial}, Times::nominal).front().peak);
}

bool fits_in_memory(const Program& trial, bool is_plan) {
    const TileBytes tiles = tile_bytes(trial);
    return has_room(tiles.all, tiles, is_plan) || has_room(simulated_peak(trial), tiles, is_plan);
}

// The smallest number of options with which the program fits, or all of them.
size_t least_that_fits(const Trials& trials) {
    const bool is_plan = trials.program.is_plan;
    const auto fits = [&](size_t count) { return fits_in_memory(*trials.with(count), is_plan); };
    size_t too_few = 0, enough = trials.options();
    if (fits(0)) return 0;
    if (!fits(enough)) return enough;
    while (enough - too_few > 1) {
        const size_t middle = (too_few + enough) / 2;
        (fits(middle) ? enough : too_few) = middle;
    }
    return enough;
}

// A plan for a number of options.
struct Trial {
    double seconds = std::numeric_limits<double>::infinity(), computing = 0;
    int64_t excess = std::numeric_limits<int64_t>::max();  // bytes beyond the room on the disk

    bool is_bound_by_tasks() const { return excess == 0 && seconds < 1.01 * computing; }
    bool is_better_than(const Trial& other) const {
        return excess != other.excess ? excess < other.excess : seconds < other.seconds;
    }
};

Trial planned_trial(const Program& trial) {
    const std::vector<double> seconds = placement_seconds(trial);
    const PlanLimits limits = tier_limits(trial);
    try {
        const ProgramPlan plan = plan_program(trial, seconds, limits);
        const Prediction time = predict(plan, plan.seconds(seconds), limits);
        return {time.seconds, time.computing, bytes_beyond_disk(plan, limits)};
    } catch (const OutOfMemory&) {
        return {};
    }
}

int64_t all_bytes(const Recomputation& recomputation) {
    int64_t out = 0;
    for (const RecomputeOption& option : recomputation.options()) out += option.bytes;
    return out;
}

// How many options to recompute for the least time with planned memory: none if tasks then take
// nearly all of the time, otherwise the best of a few numbers. If none of them fits on the disk,
// the one that needs the least of it; none if recomputation cannot help.
size_t fastest(const Trials& trials) {
    constexpr double share_of_first = 0.3, share_of_others = 0.1;  // of the time for a search
    constexpr int bisections = 5;
    const auto kept = trials.with(0);
    if (!needs_plan(*kept) && !trials.program.is_plan) return 0;
    Trial least = [&] {
        const SearchShare share(share_of_first);
        return planned_trial(*kept);
    }();
    if (least.is_bound_by_tasks()) return 0;
    if (least.excess > all_bytes(trials.recomputation)) return 0;
    const SearchShare share(share_of_others);
    const size_t all = trials.options();
    size_t best = 0;
    const auto try_count = [&](size_t count) {
        check_interrupt();
        const Trial next = planned_trial(*trials.with(count));
        if (next.is_better_than(least)) least = next, best = count;
        return next.is_bound_by_tasks();
    };
    if (try_count(all)) {
        // The time falls until tasks take all of it. Then each option adds its own time.
        size_t too_few = 0, enough = all;
        for (int i = 0; i < bisections && enough - too_few > 1; ++i) {
            const size_t middle = (too_few + enough) / 2;
            (try_count(middle) ? enough : too_few) = middle;
        }
        return best;
    }
    if (all > 1) try_count(all / 2);
    const size_t center = best, width = all / 4;
    if (width > 0 && center >= width) try_count(center - width);
    if (width > 0 && center + width <= all) try_count(center + width);
    return best;
}

bool plans_together = false;

// All ranks must run the same program.
template <class F> size_t choice_of_first_rank(const Program& program, F choose) {
    const bool is_alone = !ranks().several() || (program.is_plan && !plans_together);
    if (!is_distributed(program) || is_alone) return choose();
    const std::string mine = ranks().rank == 0 ? std::to_string(choose()) : "";
    return std::stoul(control::gather("the choice of activations", mine, check_interrupt)[0]);
}

}  // namespace

void set_activations(Activation choice) { setting = choice; }
void plan_together(bool together) { plans_together = together; }

void choose_activations(Program& program, void (*place_trial)(Program&)) {
    if (setting == Activation::keep || program.backwards.empty()) return;
    const bool is_plan = program.is_plan, planned = tiers().exist();
    const auto all_fits = [&] {
        const TileBytes tiles = tile_bytes(program);
        return setting == Activation::choose && !planned && has_room(tiles.all, tiles, is_plan);
    };
    if (!is_distributed(program) && all_fits()) return;
    const Recomputation recomputation(program);
    const Trials trials{program, recomputation, place_trial};
    if (trials.options() == 0) return;
    const size_t count = choice_of_first_rank(program, [&]() -> size_t {
        if (setting == Activation::recompute) return trials.options();
        return all_fits() ? 0 : planned ? fastest(trials) : least_that_fits(trials);
    });
    if (setting == Activation::choose && !planned && count > 0) {
        const auto trial = trials.with(count);
        program.simulated_peak = simulated_peak(*trial) - tile_bytes(*trial).admitted;
    }
    recomputation.apply(program, count);
}

}  // namespace nn
