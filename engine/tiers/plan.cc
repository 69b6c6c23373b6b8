#include "engine/tiers/plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/retain.h"
#include "engine/tiers/search.h"

namespace nn {
namespace {

constexpr size_t kB = 1 << 10;

void require(const std::string& problem) {
    if (!problem.empty()) fail("the placement of a program is wrong: %s", problem.c_str());
}

// Places a line whose ends are given; with less and less memory for tiles between their uses if the
// slots do not fit.
RunPlan plan_line(TaskLine line, uint32_t blocks, PlacementChoice choice, const LineEnds& ends) {
    RunPlan out{std::move(line), {}};
    const Retention retention(out.line.line, blocks, &ends, choice.margins);
    for (;;) {
        choice.place.margins = 1;
        auto placed = place_with_margins(out.line.line, blocks, retention, choice.place, &ends);
        if (placed) {
            out.placement = std::move(*placed);
            require(check_placement(out.line.line, out.placement));
            return out;
        }
        double& share = choice.place.share;
        if (share == 0) fail("a task needs more slots than there are");
        share = share > 0.1 ? share * 0.9 : 0;
    }
}

int64_t least_bytes(const ProgramLines& lines) { return lines.least_blocks() * slot_block; }

// Bytes of the memory that other tiles of the program take.
int64_t beside_slots(const ProgramLines& lines, const PlanLimits& limits) {
    return limits.rest > 0 ? 0 : lines.kept();
}

// Small tiles stay in memory if they are few.
std::unique_ptr<ProgramLines> lines_for(const Program& program, const std::vector<double>& seconds,
                                        const PlanLimits& limits) {
    const int64_t room = limits.memory - limits.reserved;
    std::unique_ptr<ProgramLines> out;
    for (const size_t least_placed : {64 * kB, 16 * kB, 4 * kB}) {
        out = std::make_unique<ProgramLines>(program, std::vector<const Tile*>{}, least_placed,
                                             seconds, limits.rates.workers);
        if (out->kept() < room / 8 && beside_slots(*out, limits) + least_bytes(*out) <= room) break;
    }
    if (limits.rest > 0 && out->kept() > limits.rest / 2)
        fail(
            "the small tiles, inputs and outputs of this program take %s, but %s leaves only %s to "
            "them; lower it",
            human_bytes(double(out->kept())).c_str(), limits.setting,
            human_bytes(double(limits.rest / 2)).c_str());
    const int64_t needed = beside_slots(*out, limits) + least_bytes(*out) + limits.reserved;
    if (needed > limits.memory)
        throw OutOfMemory(
            format("out of memory: a plan for this program needs at least %s of %s (%lld bytes: "
                   "%s for slots, %s for small tiles, inputs and outputs, %s in reserve), but %s "
                   "(nn.memory_tiers) is %s",
                   human_bytes(double(needed)).c_str(), limits.tier, static_cast<long long>(needed),
                   human_bytes(double(least_bytes(*out))).c_str(),
                   human_bytes(double(beside_slots(*out, limits))).c_str(),
                   human_bytes(double(limits.reserved)).c_str(), limits.setting,
                   human_bytes(double(limits.memory)).c_str()));
    return out;
}

// The runs before and after the steady ones.
void plan_other_runs(ProgramPlan& plan, const PlacementChoice& choice) {
    const Layout& between = plan.next.placement.first;
    Layout persistent = between;
    for (uint32_t tile = 0; tile < persistent.size(); ++tile)
        if (!plan.lines->persists(tile)) persistent[tile] = no_slot;
    plan.first = plan_line(plan.lines->first_run(), plan.blocks, choice, {persistent, between});
    plan.last = plan_line(plan.lines->deferred_run(), plan.blocks, choice, {between, persistent});
    const std::pair<const RunPlan*, const RunPlan*> pairs[] = {{&plan.first, &plan.next},
                                                               {&plan.first, &plan.last},
                                                               {&plan.next, &plan.last},
                                                               {&plan.last, &plan.first}};
    for (const auto& [a, b] : pairs)
        require(check_succession(a->line.line, a->placement, b->line.line, b->placement));
}

void set_steady(ProgramPlan& plan, RunPlan run, const PlacementChoice& choice) {
    const Line& line = run.line.line;
    require(check_placement(line, run.placement));
    require(check_succession(line, run.placement, line, run.placement));
    (plan.lines->has_deferred() ? plan.next : plan.first) = std::move(run);
    if (plan.lines->has_deferred()) plan_other_runs(plan, choice);
}

}  // namespace

ProgramPlan plan_program(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits) {
    ProgramPlan out;
    out.lines = lines_for(program, seconds, limits);
    const int64_t blocks =
        (limits.memory - limits.reserved - beside_slots(*out.lines, limits)) / slot_block;
    out.blocks = uint32_t(std::min<int64_t>(blocks, no_slot - 1));
    SteadyPlan best = find_steady_plan(program, *out.lines, out.blocks, seconds, limits.rates);
    out.least_moved = best.least_moved;
    set_steady(out, std::move(best.run), best.choice);
    return out;
}

ProgramPlan plan_in_slots(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, uint32_t blocks,
                          const std::vector<const Tile*>& others,
                          const std::function<uint32_t(const Tile&)>& slot_of) {
    ProgramPlan out;
    const auto make_lines = [&](const std::vector<const Tile*>& more) {
        out.lines =
            std::make_unique<ProgramLines>(program, more, 64 * kB, seconds, limits.rates.workers);
    };
    make_lines({});
    if (!out.lines->has_deferred()) make_lines(others);
    const int64_t bytes = blocks * slot_block + beside_slots(*out.lines, limits) + limits.reserved;
    if (out.lines->least_blocks() > blocks || bytes > limits.memory) return {};
    out.blocks = blocks;
    if (out.lines->has_deferred()) {
        SteadyPlan best = find_steady_plan(program, *out.lines, blocks, seconds, limits.rates);
        out.least_moved = best.least_moved;
        set_steady(out, std::move(best.run), best.choice);
        return out;
    }
    Layout homes;  // the tiles of other programs stay where they are
    for (const Tile* tile : out.lines->tiles()) homes.push_back(slot_of(*tile));
    TaskLine line = out.lines->first_run();
    const PlacementChoice choice{margins_with_queue(limits.rates, 0),
                                 {1, 1, longest_lead(line.line)}};
    set_steady(out, plan_line(std::move(line), blocks, choice, {homes, homes}), choice);
    return out;
}

Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const TierRates& rates) {
    return predict(plan.steady(), seconds, rates);
}

}  // namespace nn
