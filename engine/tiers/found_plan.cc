#include "engine/tiers/found_plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/plan_levels.h"
#include "engine/tiers/plan_line.h"
#include "engine/tiers/plan_loop.h"

namespace nn {
namespace {

// The runs of a level of a plan; those that it does not have are empty.
template <class Plan> auto runs_of(Plan& plan, size_t level) {
    if (level == 0)
        return std::vector{&plan.first, &plan.next, &plan.last, &plan.iteration, &plan.tail};
    std::vector out = {&plan.first.level(level)};
    if (plan.lines->has_deferred())
        out.push_back(&plan.next.level(level)), out.push_back(&plan.last.level(level));
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

// next: the first one of the level; then the first one after it.
void set_placements(ProgramPlan& plan, size_t level, const FoundPlan& found, size_t& next) {
    for (RunPlan* run : runs_of(plan, level)) {
        need(next < found.placements.size());
        const Placement& placement = found.placements[next++];
        if (run->line.tasks.empty() && placement.first.empty()) continue;  // no such run
        need_numbers_of(run->line.line, placement, found.blocks[level]);
        run->placement = placement;
    }
}

}  // namespace

FoundPlan found_plan(const ProgramPlan& plan) {
    FoundPlan out;
    out.choice = plan.choice;
    out.blocks = plan.blocks_of_levels();
    out.least_moved = {plan.least_moved};
    for (const ProgramPlan::Level& level : plan.below) out.least_moved.push_back(level.least_moved);
    for (size_t level = 0; level <= plan.below.size(); ++level)
        for (const RunPlan* run : runs_of(plan, level)) out.placements.push_back(run->placement);
    return out;
}

ProgramPlan plan_again(const FoundPlan& found, const Program& program,
                       const std::vector<double>& seconds, const PlanLimits& limits) {
    const size_t levels = limits.below.size() + 1;
    need(found.blocks.size() == levels && found.least_moved.size() == levels);
    ProgramPlan out = program.loops.empty() ? unplaced_plan(program, seconds, limits)
                                            : cut_plan(program, seconds, limits, found.choice.cut);
    need(out.lines && out.blocks == found.blocks[0]);
    out.choice = found.choice;
    out.lines->choose_order(found.choice.order);
    set_lines(out);
    size_t next = 0;
    set_placements(out, 0, found, next);
    out.next_iteration = repeated(out.iteration);
    out.least_moved = found.least_moved[0];
    require_correct_runs(out);
    for (size_t level = 1; level < levels; ++level) {
        begin_level(out, seconds, limits);
        out.below.back() = {found.blocks[level], found.least_moved[level]};
        set_placements(out, level, found, next);
        require_correct_level(out);
    }
    need(next == found.placements.size());
    return out;
}

}  // namespace nn
