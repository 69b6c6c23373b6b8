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
        const Prediction time = predict(next, seconds, limits);
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
    } catch (const OutOfMemory&) {
        throw;
    } catch (const Error&) {  // two programs with one key, or a file from elsewhere
    }
    return {};
}

ProgramPlan plan_program(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits) {
    const uint64_t key = plan_key(program, limits);
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

// Tiles of other programs leave their slots.
static ProgramPlan plan_loop_in(uint32_t blocks, const Program& program,
                                const std::vector<double>& seconds, const PlanLimits& limits) {
    const ProgramLines lines(program, {}, small_tile, seconds, limits.rates.workers);
    if (blocks < lines.least_blocks() || blocks > blocks_for(lines, limits)) return {};
    return plan_loop(program, seconds, limits, blocks);
}

ProgramPlan plan_in_slots(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, const ExistingSlots& slots) {
    if (!program.loops.empty()) return plan_loop_in(slots.blocks[0], program, seconds, limits);
    ProgramPlan out;
    const auto make_lines = [&](const std::vector<const Tile*>& more) {
        out.lines = std::make_unique<ProgramLines>(program, more, small_tile, seconds,
                                                   limits.rates.workers);
    };
    make_lines({});
    if (!out.lines->has_deferred()) make_lines(slots.others);
    const int64_t bytes =
        slots.blocks[0] * slot_block + beside_slots(*out.lines, limits) + limits.reserved;
    if (out.lines->least_blocks() > slots.blocks[0] || bytes > limits.memory) return {};
    out.blocks = slots.blocks[0];
    if (out.lines->has_deferred()) {
        plan_in_order(out, program, seconds, limits);
    } else {
        Layout homes;  // the tiles of other programs stay where they are
        for (const Tile* tile : out.lines->tiles())
            homes.push_back(slot_in(0, slots.place_of(*tile)));
        TaskLine line = out.lines->first_run();
        const PlacementChoice choice = default_choice(line.line, limits.rates);
        set_steady(out, plan_line(std::move(line), out.blocks, choice, {homes, homes}), choice);
    }
    return add_levels_in(slots, out, seconds, limits) ? std::move(out) : ProgramPlan();
}

}  // namespace nn
