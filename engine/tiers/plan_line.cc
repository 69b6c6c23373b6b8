#include "engine/tiers/plan_line.h"

#include <algorithm>
#include <cstdlib>
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

// Bytes of the memory that tiles outside of slots take.
static int64_t beside_slots(const ProgramLines& lines, const PlanLimits& limits) {
    return limits.rest > 0 ? 0 : lines.kept();
}

// Whether tiles outside of slots take more than a GPU's rest leaves to them.
static bool exceeds_rest(const ProgramLines& lines, const PlanLimits& limits) {
    return limits.rest > 0 && lines.kept() > limits.rest / 2;
}

static int64_t least_bytes(const ProgramLines& lines, const PlanLimits& limits) {
    return lines.least_blocks() * slot_block + beside_slots(lines, limits);
}

// Whether slots for each task, or those that exist, fit beside the tiles outside of them.
static bool has_room(const ProgramLines& lines, const PlanLimits& limits,
                     const ExistingSlots* slots) {
    const int64_t room = limits.memory - limits.reserved;
    if (least_bytes(lines, limits) > room || exceeds_rest(lines, limits)) return false;
    return !slots || (lines.least_blocks() <= slots->blocks[0] &&
                      slots->blocks[0] * slot_block + beside_slots(lines, limits) <= room);
}

// Lines in which tiles of so many bytes and more are placed: by fewer bytes from one to the next.
static std::vector<size_t> least_placed() {
    static const char* const text = std::getenv("NNLUA_PLACED_TILE");  // for tests
    const size_t most = text ? std::strtoull(text, nullptr, 10) : size_t(64) << 10;
    return {most, most / 4, most / 16};
}

// Small tiles stay outside of slots if they are few.
std::unique_ptr<ProgramLines> lines_for(const Program& program, const std::vector<double>& seconds,
                                        const PlanLimits& limits, const ExistingSlots* slots) {
    const auto others = slots ? slots->others : std::vector<const Tile*>();
    std::unique_ptr<ProgramLines> out;
    for (const size_t least : least_placed()) {
        auto next =
            std::make_unique<ProgramLines>(program, others, least, seconds, limits.rates.workers);
        if (!has_room(*next, limits, slots)) continue;
        out = std::move(next);
        if (out->kept() < (limits.memory - limits.reserved) / 8) break;
    }
    return out;
}

void refuse(const Program& program, const std::vector<double>& seconds, const PlanLimits& limits) {
    std::unique_ptr<ProgramLines> lines;
    const auto demand = [&](const ProgramLines& of) {
        return std::pair(exceeds_rest(of, limits), least_bytes(of, limits));
    };
    for (const size_t least : least_placed()) {
        auto next = std::make_unique<ProgramLines>(program, std::vector<const Tile*>(), least,
                                                   seconds, limits.rates.workers);
        if (!lines || demand(*next) < demand(*lines)) lines = std::move(next);
    }
    if (exceeds_rest(*lines, limits))
        fail(
            "the small tiles, inputs and outputs of this program take %s, but %s leaves only %s to "
            "them; lower %s",
            human_bytes(double(lines->kept())).c_str(), limits.setting,
            human_bytes(double(limits.rest / 2)).c_str(), limits.setting);
    const int64_t bytes = least_bytes(*lines, limits), memory = limits.memory_for(bytes);
    const int64_t without_plan = limits.memory_for(limits.all_tiles, 2);
    const bool whole = limits.all_tiles > 0 && without_plan <= memory;
    const std::string parts =
        whole ? ", which hold all of it"
              : format(": %s for slots, %s for small tiles, inputs and outputs, %s in reserve",
                       human_bytes(double(lines->least_blocks() * slot_block)).c_str(),
                       human_bytes(double(beside_slots(*lines, limits))).c_str(),
                       human_bytes(double(memory - bytes)).c_str());
    const int64_t least = whole ? without_plan : memory;
    throw OutOfMemory(
        format("out of memory: a plan for this program needs at least %s of %s (%lld bytes%s), "
               "but %s (nn.memory_tiers) is %s; raise %s%s",
               human_bytes(double(least)).c_str(), limits.tier, static_cast<long long>(least),
               parts.c_str(), limits.setting, human_bytes(double(limits.memory)).c_str(),
               limits.setting, lines->kept() > memory / 2 ? " or use a smaller batch" : ""));
}

LineEnds homes_in(uint32_t level, const Line& line, const ProgramLines& lines,
                  const ExistingSlots& slots) {
    Layout homes(line.tiles.size(), no_slot);
    for (uint32_t tile = 0; tile < homes.size(); ++tile)
        if (line.is_placed(tile) && line.tiles[tile].before)
            homes[tile] = slot_in(level, slots.place_of(*lines.tiles()[tile]));
    return {homes, homes};
}

ProgramPlan unplaced_plan(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, const ExistingSlots* slots) {
    ProgramPlan out;
    out.lines = lines_for(program, seconds, limits, slots);
    if (!out.lines) return out;
    const int64_t bytes = limits.memory - limits.reserved - beside_slots(*out.lines, limits);
    out.blocks =
        slots ? slots->blocks[0] : uint32_t(std::min<int64_t>(bytes / slot_block, no_slot - 1));
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
