#include "engine/tiers/plan_levels.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/plan_line.h"
#include "engine/tiers/predict.h"

namespace nn {
namespace {

template <class Plan> auto runs_of(Plan& plan) {
    std::vector out = {&plan.first};
    if (plan.lines->has_deferred()) out.push_back(&plan.next), out.push_back(&plan.last);
    return out;
}

// The largest tile that is transferred, and the tiles that are ever in the lowest level.
struct Demand {
    uint32_t largest = 0;  // tile
    uint32_t largest_blocks = 0;
    int64_t all_blocks = 0;
};
Demand demand_of(const ProgramPlan& plan) {
    Demand out;
    std::vector<char> seen(plan.lines->tiles().size(), 0);
    for (const RunPlan* run : runs_of(plan)) {
        const Line& line = run->lowest().line.line;
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

// Bytes that a level needs beside its slots.
int64_t beside(const ProgramPlan& plan, const LevelLimits& limits) {
    return plan.lines->kept() + limits.reserved;
}

void require_memory(const ProgramPlan& plan, const Demand& demand, const LevelLimits& limits) {
    const int64_t largest = demand.largest_blocks * slot_block;
    if (largest + beside(plan, limits) <= limits.memory) return;
    const int64_t needed = limits.memory_for(largest + plan.lines->kept()),
                  reserved = needed - largest - plan.lines->kept();
    throw OutOfMemory(format(
        "out of memory: a plan for this program needs at least %s of %s (%lld bytes: %s for the "
        "largest tile that passes through it, %s for small tiles, inputs and outputs, %s in "
        "reserve), but %s (nn.memory_tiers) is %s",
        human_bytes(double(needed)).c_str(), limits.tier, static_cast<long long>(needed),
        human_bytes(double(largest)).c_str(), human_bytes(double(plan.lines->kept())).c_str(),
        human_bytes(double(reserved)).c_str(), limits.setting,
        human_bytes(double(limits.memory)).c_str()));
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
    const size_t level = plan.below.size();
    ProgramPlan::Level& of = plan.below.back();
    RunPlan& steady = plan.steady().level(level);
    PlacementChoice choice = default_choice(steady.line.line, rates);
    if (steady.line.tasks.empty()) {
        steady.placement = nothing_placed(steady.line.line, of.blocks);
    } else {
        const auto seconds = seconds_between(plan.steady().level(level - 1), steady.line);
        SearchTime time;
        SteadyPlan best = find_line_plan(steady.line, of.blocks, seconds, rates, time, false);
        of.least_moved = best.least_moved;
        choice = best.choice;
        steady = std::move(best.run);
    }
    if (plan.lines->has_deferred())
        plan_around({plan.first.level(level), plan.next.level(level), plan.last.level(level)},
                    *plan.lines, of.blocks, choice);
}

}  // namespace

void begin_level(ProgramPlan& plan, const std::vector<double>& seconds, const PlanLimits& limits) {
    const size_t level = plan.below.size();  // above the new one
    std::vector<TierRates> rates = limits.rates_of_levels();
    rates.resize(level + 1);
    const double without_waits = plan.steady().level(level).line.line.seconds;
    const double pace =
        without_waits > 0
            ? std::max(1.0, predict({&plan.steady()}, plan.seconds(seconds), rates).seconds /
                                without_waits)
            : 1;
    for (RunPlan* run : runs_of(plan)) {
        TaskLine line = lower_line(run->level(level), pace, rates[level]);
        run->below.push_back({std::move(line), {}});
    }
    plan.below.push_back({});
}

void require_correct_level(const ProgramPlan& plan) {
    const size_t level = plan.below.size();
    require_steady(plan.steady().level(level));
    if (plan.lines->has_deferred()) {
        for (const RunPlan* run : {&plan.first.level(level), &plan.last.level(level)})
            require_correct(check_placement(run->line.line, run->placement));
        require_succession(plan.first.level(level), plan.next.level(level), plan.last.level(level));
    }
    for (const RunPlan* run : runs_of(plan)) require_correct(check_levels(*run));
}

void add_levels(ProgramPlan& plan, const std::vector<double>& seconds, const PlanLimits& limits) {
    for (const LevelLimits& of : limits.below) {
        begin_level(plan, seconds, limits);
        const Demand demand = demand_of(plan);
        require_memory(plan, demand, of);
        const int64_t room = of.memory - beside(plan, of);
        plan.below.back().blocks =
            uint32_t(std::min<int64_t>({room / slot_block, demand.all_blocks, no_slot - 1}));
        place_steady(plan, of.rates);
        require_correct_level(plan);
    }
}

bool add_levels_in(const ExistingSlots& slots, ProgramPlan& plan,
                   const std::vector<double>& seconds, const PlanLimits& limits) {
    for (const LevelLimits& of : limits.below) {
        begin_level(plan, seconds, limits);
        const auto level = uint32_t(plan.below.size());
        const uint32_t blocks = plan.below.back().blocks = slots.blocks[level];
        const Demand demand = demand_of(plan);
        if (demand.largest_blocks > blocks || blocks * slot_block + beside(plan, of) > of.memory)
            return false;
        if (plan.lines->has_deferred()) {
            place_steady(plan, of.rates);
        } else {
            RunPlan& run = plan.first.level(level);
            const PlacementChoice choice = default_choice(run.line.line, of.rates);
            const LineEnds homes = homes_in(level, run.line.line, *plan.lines, slots);
            run = plan_line(std::move(run.line), blocks, choice, homes);
        }
        require_correct_level(plan);
    }
    return true;
}

}  // namespace nn
