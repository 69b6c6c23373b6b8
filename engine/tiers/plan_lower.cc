#include "engine/tiers/plan_lower.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/plan_line.h"
#include "engine/tiers/predict.h"

namespace nn {
namespace {

std::vector<const RunPlan*> runs_of(const ProgramPlan& plan) {
    if (!plan.lines->has_deferred()) return {&plan.first};
    return {&plan.first, &plan.next, &plan.last};
}

// The largest tile that is transferred, and the tiles that are ever in the lower level.
struct Demand {
    uint32_t largest = 0;  // tile
    uint32_t largest_blocks = 0;
    int64_t all_blocks = 0;
};
Demand demand_of(const ProgramPlan& plan) {
    Demand out;
    std::vector<char> seen(plan.lines->tiles().size(), 0);
    for (const RunPlan* run : runs_of(plan)) {
        const Line& line = plan.below(*run)->line.line;
        for (uint32_t tile = 0; tile < line.tiles.size(); ++tile)
            if (line.is_placed(tile) && (line.tiles[tile].before || line.tiles[tile].after))
                seen[tile] = 1;
        for (const auto& access : line.accesses.list) {
            seen[access.tile] = 1;
            const uint32_t blocks = line.tiles[access.tile].blocks;
            if (blocks > out.largest_blocks) out.largest = access.tile, out.largest_blocks = blocks;
        }
    }
    const auto& tiles = plan.steady().line.line.tiles;
    for (uint32_t tile = 0; tile < seen.size(); ++tile)
        if (seen[tile]) out.all_blocks += tiles[tile].blocks;
    return out;
}

int64_t needed_bytes(const ProgramPlan& plan, const Demand& demand, const LowerLimits& limits) {
    return demand.largest_blocks * slot_block + plan.lines->kept() + limits.reserved;
}

void require_memory(const ProgramPlan& plan, const Demand& demand, const LowerLimits& limits) {
    const int64_t needed = needed_bytes(plan, demand, limits);
    if (needed <= limits.memory) return;
    throw OutOfMemory(format(
        "out of memory: a plan for this program needs at least %s of RAM (%lld bytes: %s "
        "for the largest tile between the GPU and the disk, %s for small tiles, inputs and "
        "outputs, %s in reserve), but memory.ram (nn.memory_tiers) is %s",
        human_bytes(double(needed)).c_str(), static_cast<long long>(needed),
        human_bytes(double(demand.largest_blocks * slot_block)).c_str(),
        human_bytes(double(plan.lines->kept())).c_str(),
        human_bytes(double(limits.reserved)).c_str(), human_bytes(double(limits.memory)).c_str()));
}

// The seconds from each transfer to the next one, by its number in the steps of the upper level.
std::vector<double> seconds_between(const RunPlan& upper, const TaskLine& line) {
    std::vector<double> out(upper.placement.steps.size(), 0);
    for (uint32_t i = 0; i < line.tasks.size(); ++i) {
        const bool is_last = i + 1 == line.tasks.size();
        out[line.tasks[i]] =
            (is_last ? line.line.seconds : line.line.begins[i + 1]) - line.line.begins[i];
    }
    return out;
}

// Without transfers of the upper level, nothing is in the lower one.
Placement nothing_placed(const Line& line, uint32_t blocks) {
    Placement out;
    out.blocks = blocks;
    out.first = out.last = Layout(line.tiles.size(), no_slot);
    return out;
}

void place_steady(ProgramPlan& plan, const TierRates& rates) {
    LowerPlan& lower = *plan.lower;
    RunPlan& steady = plan.lines->has_deferred() ? lower.next : lower.first;
    PlacementChoice choice = default_choice(steady.line.line, rates);
    if (steady.line.tasks.empty()) {
        steady.placement = nothing_placed(steady.line.line, lower.blocks);
    } else {
        const auto seconds = seconds_between(plan.steady(), steady.line);
        SearchTime time;
        SteadyPlan best = find_line_plan(steady.line, lower.blocks, seconds, rates, time, false);
        lower.least_moved = best.least_moved;
        choice = best.choice;
        steady = std::move(best.run);
    }
    if (plan.lines->has_deferred())
        plan_around({lower.first, lower.next, lower.last}, *plan.lines, lower.blocks, choice);
}

}  // namespace

void begin_lower_level(ProgramPlan& plan, const std::vector<double>& seconds,
                       const TierRates& rates) {
    const double without_waits = plan.steady().line.line.seconds;
    const double pace =
        without_waits > 0
            ? std::max(1.0, predict(plan.steady(), seconds, rates).seconds / without_waits)
            : 1;
    plan.lower = std::make_unique<LowerPlan>();
    plan.lower->first.line = lower_line(plan.first, pace, rates);
    if (!plan.lines->has_deferred()) return;
    plan.lower->next.line = lower_line(plan.next, pace, rates);
    plan.lower->last.line = lower_line(plan.last, pace, rates);
}

void require_correct_levels(const ProgramPlan& plan) {
    const LowerPlan& lower = *plan.lower;
    require_steady(*plan.below(plan.steady()));
    if (plan.lines->has_deferred()) {
        for (const RunPlan* run : {&lower.first, &lower.last})
            require_correct(check_placement(run->line.line, run->placement));
        require_succession(lower.first, lower.next, lower.last);
    }
    for (const RunPlan* run : runs_of(plan)) require_correct(check_levels(*run, *plan.below(*run)));
}

void add_lower_level(ProgramPlan& plan, const std::vector<double>& seconds,
                     const PlanLimits& limits) {
    begin_lower_level(plan, seconds, limits.rates);
    const Demand demand = demand_of(plan);
    require_memory(plan, demand, limits.lower);
    const int64_t room = limits.lower.memory - limits.lower.reserved - plan.lines->kept();
    plan.lower->blocks =
        uint32_t(std::min<int64_t>({room / slot_block, demand.all_blocks, no_slot - 1}));
    place_steady(plan, limits.lower.rates);
    require_correct_levels(plan);
}

bool add_lower_level_in(const ExistingSlots& slots, ProgramPlan& plan,
                        const std::vector<double>& seconds, const PlanLimits& limits) {
    begin_lower_level(plan, seconds, limits.rates);
    const Demand demand = demand_of(plan);
    const int64_t bytes =
        slots.lower_blocks * slot_block + plan.lines->kept() + limits.lower.reserved;
    if (demand.largest_blocks > slots.lower_blocks || bytes > limits.lower.memory) return false;
    LowerPlan& lower = *plan.lower;
    lower.blocks = slots.lower_blocks;
    if (plan.lines->has_deferred()) {
        place_steady(plan, limits.lower.rates);
    } else {
        Layout homes;
        for (const Tile* tile : plan.lines->tiles()) homes.push_back(slots.place_of(*tile).lower);
        const PlacementChoice choice = default_choice(lower.first.line.line, limits.lower.rates);
        lower.first = plan_line(std::move(lower.first.line), lower.blocks, choice, {homes, homes});
    }
    require_correct_levels(plan);
    return true;
}

}  // namespace nn
