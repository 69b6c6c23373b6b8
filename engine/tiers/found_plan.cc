#include "engine/tiers/found_plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/plan_line.h"
#include "engine/tiers/plan_loop.h"
#include "engine/tiers/plan_lower.h"

namespace nn {
namespace {

// The runs of a plan; those that it does not have are empty.
template <class Plan> auto runs_of(Plan& plan) {
    std::vector out = {&plan.first, &plan.next, &plan.last, &plan.iteration, &plan.tail};
    if (plan.lower)
        for (auto* run : {&plan.lower->first, &plan.lower->next, &plan.lower->last})
            out.push_back(run);
    return out;
}

void need(bool condition) {
    if (!condition) fail("a plan that was kept belongs to another program");
}

// Whether the numbers in a placement are those of the line's tasks, tiles and accesses.
void need_numbers_of(const Line& line, const Placement& placement, uint32_t blocks) {
    const size_t tiles = line.tiles.size(), tasks = line.accesses.tasks();
    need(placement.blocks == blocks && placement.slots.size() == line.accesses.list.size() &&
         placement.first.size() == tiles && placement.last.size() == tiles);
    for (const Placement::Step& step : placement.steps)
        need(step.index < (step.kind == Placement::run ? tasks : tiles) &&
             step.kind <= Placement::store);
}

void set_placements(const std::vector<RunPlan*>& runs, const std::vector<Placement>& placements,
                    size_t begin, uint32_t blocks) {
    for (size_t i = begin; i < runs.size(); ++i) {
        if (runs[i]->line.tasks.empty() && placements[i].first.empty()) continue;  // no such run
        need_numbers_of(runs[i]->line.line, placements[i], blocks);
        runs[i]->placement = placements[i];
    }
}

}  // namespace

FoundPlan found_plan(const ProgramPlan& plan) {
    FoundPlan out;
    out.choice = plan.choice;
    out.blocks = plan.blocks, out.least_moved = plan.least_moved;
    if (plan.lower)
        out.lower_blocks = plan.lower->blocks, out.lower_least_moved = plan.lower->least_moved;
    for (const RunPlan* run : runs_of(plan)) out.placements.push_back(run->placement);
    return out;
}

ProgramPlan plan_again(const FoundPlan& found, const Program& program,
                       const std::vector<double>& seconds, const PlanLimits& limits) {
    ProgramPlan out = program.loops.empty() ? unplaced_plan(program, seconds, limits)
                                            : cut_plan(program, seconds, limits, found.choice.cut);
    need(out.blocks == found.blocks);
    out.choice = found.choice;
    out.lines->choose_order(found.choice.order);
    set_lines(out);
    constexpr size_t upper = 5;
    const bool has_lower = limits.lower.memory > 0;
    need(found.placements.size() == (has_lower ? upper + 3 : upper));
    set_placements(runs_of(out), found.placements, 0, out.blocks);
    out.next_iteration = repeated(out.iteration);
    out.least_moved = found.least_moved;
    require_correct_runs(out);
    if (!has_lower) return out;
    begin_lower_level(out, seconds, limits.rates);
    out.lower->blocks = found.lower_blocks;
    out.lower->least_moved = found.lower_least_moved;
    set_placements(runs_of(out), found.placements, upper, found.lower_blocks);
    require_correct_levels(out);
    return out;
}

}  // namespace nn
