#include "engine/tiers/plan_line.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/retain.h"
#include "engine/tiers/store_places.h"

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
}

static void require_succession(const RunPlan& a, const RunPlan& b) {
    require_correct(check_succession(a.line.line, a.placement, b.line.line, b.placement));
}

void require_succession(const RunPlan& first, const RunPlan& next, const RunPlan& last) {
    require_succession(first, next), require_succession(first, last);
    require_succession(next, last), require_succession(last, first);
}

static int64_t least_bytes(const ProgramLines& lines) { return lines.least_blocks() * slot_block; }

int64_t beside_slots(const ProgramLines& lines, const PlanLimits& limits) {
    return limits.rest > 0 ? 0 : lines.kept();
}

[[noreturn]] static void refuse(const ProgramLines& lines, int64_t needed,
                                const PlanLimits& limits) {
    const bool whole = limits.whole > 0 && limits.whole <= needed;
    const std::string parts =
        whole ? ", which hold all of it"
              : format(": %s for slots, %s for small tiles, inputs and outputs, %s in reserve",
                       human_bytes(double(least_bytes(lines))).c_str(),
                       human_bytes(double(beside_slots(lines, limits))).c_str(),
                       human_bytes(double(limits.reserved)).c_str());
    const int64_t least = whole ? limits.whole : needed;
    throw OutOfMemory(
        format("out of memory: a plan for this program needs at least %s of %s (%lld bytes%s), "
               "but %s (nn.memory_tiers) is %s; raise %s%s",
               human_bytes(double(least)).c_str(), limits.tier, static_cast<long long>(least),
               parts.c_str(), limits.setting, human_bytes(double(limits.memory)).c_str(),
               limits.setting, lines.kept() > needed / 2 ? " or use a smaller batch" : ""));
}

// Small tiles stay in memory if they are few.
std::unique_ptr<ProgramLines> lines_for(const Program& program, const std::vector<double>& seconds,
                                        const PlanLimits& limits) {
    const int64_t room = limits.memory - limits.reserved;
    std::unique_ptr<ProgramLines> out;
    for (const size_t least_placed : {small_tile, small_tile / 4, small_tile / 16}) {
        out = std::make_unique<ProgramLines>(program, std::vector<const Tile*>{}, least_placed,
                                             seconds, limits.rates.workers);
        if (out->kept() < room / 8 && beside_slots(*out, limits) + least_bytes(*out) <= room) break;
    }
    if (limits.rest > 0 && out->kept() > limits.rest / 2)
        fail(
            "the small tiles, inputs and outputs of this program take %s, but %s leaves only %s to "
            "them; lower %s",
            human_bytes(double(out->kept())).c_str(), limits.setting,
            human_bytes(double(limits.rest / 2)).c_str(), limits.setting);
    const int64_t needed = beside_slots(*out, limits) + least_bytes(*out) + limits.reserved;
    if (needed > limits.memory) refuse(*out, needed, limits);
    return out;
}

uint32_t blocks_for(const ProgramLines& lines, const PlanLimits& limits) {
    const int64_t bytes = limits.memory - limits.reserved - beside_slots(lines, limits);
    return uint32_t(std::min<int64_t>(bytes / slot_block, no_slot - 1));
}

ProgramPlan unplaced_plan(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits) {
    ProgramPlan out;
    out.lines = lines_for(program, seconds, limits);
    out.blocks = blocks_for(*out.lines, limits);
    return out;
}

void set_lines(ProgramPlan& plan) {
    const ProgramLines& lines = *plan.lines;
    plan.first.line = lines.first_run();
    if (lines.has_deferred())
        plan.next.line = lines.next_run(), plan.last.line = lines.deferred_run();
    if (lines.has_loop())
        plan.iteration.line = lines.iteration_run(), plan.tail.line = lines.tail_run();
}

void set_steady(ProgramPlan& plan, RunPlan run, const PlacementChoice& choice) {
    if (!plan.lines->has_deferred()) {
        plan.first = std::move(run);
    } else {
        plan.next = std::move(run);
        plan.first.line = plan.lines->first_run(), plan.last.line = plan.lines->deferred_run();
        plan_around({plan.first, plan.next, plan.last}, *plan.lines, plan.blocks, choice);
    }
    require_correct_runs(plan);
}

void plan_in_order(ProgramPlan& plan, const Program& program, const std::vector<double>& seconds,
                   const PlanLimits& limits) {
    const auto place_within = [&](const PlanLimits& these) {
        SteadyPlan best = find_steady_plan(program, *plan.lines, plan.blocks, seconds, these);
        plan.least_moved = best.least_moved;
        plan.choice.order = best.order;
        set_steady(plan, std::move(best.run), best.choice);
    };
    place_within(limits);
    const OrderChoice& order = plan.choice.order;
    const bool is_first = !order.by_layer && order.late_updates == 0;
    if (is_first || bytes_beyond_disk(plan, limits) == 0) return;
    // The first or the last run needs more than the steady one: take the order that needs the
    // least.
    PlanLimits no_room = limits;
    no_room.disk = 1;
    place_within(no_room);
}

void require_steady(const RunPlan& run) {
    require_correct(check_placement(run.line.line, run.placement));
    require_succession(run, run);
}

void require_correct_runs(const ProgramPlan& plan) {
    const bool has_deferred = plan.lines->has_deferred();
    std::vector<const RunPlan*> heads = {&plan.first};
    if (has_deferred) heads.push_back(&plan.next);
    auto ends = heads, all = heads;
    if (has_deferred) all.push_back(&plan.last);
    if (plan.lines->has_loop()) {
        all.push_back(&plan.iteration), all.push_back(&plan.tail);
        ends = {&plan.tail};
    }
    for (const RunPlan* run : all) require_correct(check_placement(run->line.line, run->placement));
    if (plan.lines->has_loop()) {
        for (const RunPlan* head : heads) require_succession(*head, plan.iteration);
        require_succession(plan.iteration, plan.iteration);
        require_succession(plan.iteration, plan.tail);
    }
    for (const RunPlan* end : ends) {
        require_succession(*end, has_deferred ? plan.next : plan.first);
        if (has_deferred) require_succession(*end, plan.last);
    }
    if (has_deferred) require_succession(plan.last, plan.first);
}

}  // namespace nn
