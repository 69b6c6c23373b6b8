#include "engine/tiers/plan_line.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/retain.h"

namespace nn {

void require_correct(const std::string& problem) {
    if (!problem.empty()) fail("the placement of a program is wrong: %s", problem.c_str());
}

RunPlan plan_line(TaskLine line, uint32_t blocks, PlacementChoice choice, const LineEnds& ends) {
    RunPlan out{std::move(line), {}};
    const Retention retention(out.line.line, blocks, &ends, choice.margins);
    for (;;) {
        auto placed = place(out.line.line, blocks, retention, choice.place, &ends);
        if (placed) {
            out.placement = std::move(*placed);
            require_correct(check_placement(out.line.line, out.placement));
            return out;
        }
        double& share = choice.place.share;
        if (share == 0) fail("a task needs more slots than there are");
        share = share > 0.1 ? share * 0.9 : 0;
    }
}

PlacementChoice default_choice(const Line& line, const TierRates& rates) {
    return {margins_with_queue(rates, 0), {1, longest_lead(line)}};
}

void plan_around(const LevelRuns& runs, const ProgramLines& lines, uint32_t blocks,
                 const PlacementChoice& choice) {
    const Layout& between = runs.next.placement.first;
    Layout persistent = between;
    for (uint32_t tile = 0; tile < persistent.size(); ++tile)
        if (!lines.persists(tile)) persistent[tile] = no_slot;
    runs.first = plan_line(std::move(runs.first.line), blocks, choice, {persistent, between});
    runs.last = plan_line(std::move(runs.last.line), blocks, choice, {between, persistent});
    const std::pair<const RunPlan*, const RunPlan*> pairs[] = {{&runs.first, &runs.next},
                                                               {&runs.first, &runs.last},
                                                               {&runs.next, &runs.last},
                                                               {&runs.last, &runs.first}};
    for (const auto& [a, b] : pairs)
        require_correct(check_succession(a->line.line, a->placement, b->line.line, b->placement));
}

void require_steady(const RunPlan& run) {
    const Line& line = run.line.line;
    require_correct(check_placement(line, run.placement));
    require_correct(check_succession(line, run.placement, line, run.placement));
}

}  // namespace nn
