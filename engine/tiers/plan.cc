#include "engine/tiers/plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/tiers/found_plan.h"
#include "engine/tiers/plan_levels.h"
#include "engine/tiers/plan_line.h"
#include "engine/tiers/plan_loop.h"
#include "engine/tiers/search_time.h"
#include "engine/tiers/store_places.h"

namespace nn {

// The uppermost level.
static ProgramPlan plan_upper(const Program& program, const std::vector<double>& seconds,
                              const PlanLimits& limits) {
    if (!program.loops.empty()) return plan_loop(program, seconds, limits);
    ProgramPlan out = unplaced_plan(program, seconds, limits);
    if (!out.lines) refuse(program, seconds, limits);
    plan_in_order(out, program, seconds, limits);
    return out;
}

static ProgramPlan search_plan(const Program& program, const std::vector<double>& seconds,
                               const PlanLimits& limits) {
    if (limits.below.empty()) return plan_upper(program, seconds, limits);
    // The order of the tasks and what stays in slots depend on the time of transfers. Where a link
    // below is the bottleneck, a plan for transfers at its rate may be better.
    PlanLimits slow = limits;
    for (const LevelLimits& level : limits.below)
        slow.rates.link_rate = std::min(slow.rates.link_rate, level.rates.link_rate);
    slow.rates.two_links = false;
    ProgramPlan best;
    std::pair<int64_t, double> least;  // bytes that do not fit on the disk, and seconds
    for (const PlanLimits& upper : {limits, slow}) {
        ProgramPlan next = plan_upper(program, seconds, upper);
        add_levels(next, seconds, limits);
        const Prediction time = predict(next, next.seconds(seconds), limits);
        const std::pair found{bytes_beyond_disk(next, limits), time.seconds};
        if (best.lines && found >= least) continue;
        least = found;
        best = std::move(next);
        if (found.first == 0 && found.second < 1.002 * time.computing) break;
    }
    return best;
}

// A plan without lines if none was kept that still serves.
static ProgramPlan kept_plan_for(const Program& program, const std::vector<double>& seconds,
                                 const PlanLimits& limits, uint64_t key, const LinkBytes& bytes) {
    const FoundPlan* const kept = kept_plan(key, bytes, limits.disk);
    if (!kept) return {};
    try {
        ProgramPlan out = plan_again(*kept, program, seconds, limits);
        if (bytes_beyond_disk(out, limits) == 0) return out;
    } catch (const Error&) {  // two programs with one key, or a file from elsewhere
    }
    return {};
}

ProgramPlan plan_program(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits) {
    const uint64_t key = plan_key(program, seconds, limits);
    const LinkBytes bytes = link_bytes(program, seconds, limits);
    ProgramPlan out = kept_plan_for(program, seconds, limits, key, bytes);
    if (out.lines) return out;
    const size_t limited = limited_searches(), beyond = plans_beyond_disk();
    out = search_plan(program, seconds, limits);
    const SearchLimits met{limited_searches() > limited,
                           plans_beyond_disk() > beyond ? limits.disk : 0};
    if (!interrupt_requested())  // else a signal ended the search
        keep_plan(key, bytes, met, found_plan(out));
    return out;
}

// Tiles of other programs stay where they are, as far as they are placed, unless the program has a
// loop or deferred tasks.
ProgramPlan plan_in_slots(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, const ExistingSlots& slots) {
    const ExistingSlots own{slots.blocks, {}, slots.place_of};
    ProgramPlan out;
    if (!program.loops.empty()) {
        out = plan_loop(program, seconds, limits, &own);
    } else if (out = unplaced_plan(program, seconds, limits, &own);
               out.lines && out.lines->has_deferred()) {
        plan_in_order(out, program, seconds, limits);
    } else if (out = unplaced_plan(program, seconds, limits, &slots); out.lines) {
        TaskLine line = out.lines->first_run();
        const PlacementChoice choice = default_choice(line.line, limits.rates);
        const LineEnds homes = homes_in(0, line.line, *out.lines, slots);
        set_steady(out, plan_line(std::move(line), out.blocks, choice, homes), choice);
    }
    if (!out.lines) return {};
    return add_levels_in(slots, out, seconds, limits) ? std::move(out) : ProgramPlan();
}

}  // namespace nn
