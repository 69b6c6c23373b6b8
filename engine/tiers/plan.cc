#include "engine/tiers/plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/plan_line.h"
#include "engine/tiers/plan_loop.h"
#include "engine/tiers/plan_lower.h"

namespace nn {
namespace {

constexpr size_t kB = 1 << 10;

int64_t least_bytes(const ProgramLines& lines) { return lines.least_blocks() * slot_block; }

// Bytes of the memory that other tiles of the program take.
int64_t beside_slots(const ProgramLines& lines, const PlanLimits& limits) {
    return limits.rest > 0 ? 0 : lines.kept();
}

}  // namespace

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
            "them; lower %s",
            human_bytes(double(out->kept())).c_str(), limits.setting,
            human_bytes(double(limits.rest / 2)).c_str(), limits.setting);
    const int64_t needed = beside_slots(*out, limits) + least_bytes(*out) + limits.reserved;
    if (needed > limits.memory)
        throw OutOfMemory(
            format("out of memory: a plan for this program needs at least %s of %s (%lld bytes: "
                   "%s for slots, %s for small tiles, inputs and outputs, %s in reserve), but %s "
                   "(nn.memory_tiers) is %s; raise %s%s",
                   human_bytes(double(needed)).c_str(), limits.tier, static_cast<long long>(needed),
                   human_bytes(double(least_bytes(*out))).c_str(),
                   human_bytes(double(beside_slots(*out, limits))).c_str(),
                   human_bytes(double(limits.reserved)).c_str(), limits.setting,
                   human_bytes(double(limits.memory)).c_str(), limits.setting,
                   out->kept() > needed / 2 ? " or use a smaller batch" : ""));
    return out;
}

uint32_t blocks_for(const ProgramLines& lines, const PlanLimits& limits) {
    const int64_t bytes = limits.memory - limits.reserved - beside_slots(lines, limits);
    return uint32_t(std::min<int64_t>(bytes / slot_block, no_slot - 1));
}

namespace {

void set_steady(ProgramPlan& plan, RunPlan run, const PlacementChoice& choice) {
    require_steady(run);
    if (!plan.lines->has_deferred()) {
        plan.first = std::move(run);
        return;
    }
    plan.next = std::move(run);
    plan.first.line = plan.lines->first_run(), plan.last.line = plan.lines->deferred_run();
    plan_around({plan.first, plan.next, plan.last}, *plan.lines, plan.blocks, choice);
}

}  // namespace

void plan_in_order(ProgramPlan& plan, const Program& program, const std::vector<double>& seconds,
                   const PlanLimits& limits) {
    SteadyPlan best = find_steady_plan(program, *plan.lines, plan.blocks, seconds, limits.rates);
    plan.least_moved = best.least_moved;
    set_steady(plan, std::move(best.run), best.choice);
}

// The level of the slots, without the one below.
static ProgramPlan plan_upper(const Program& program, const std::vector<double>& seconds,
                              const PlanLimits& limits) {
    if (!program.loops.empty()) return plan_loop(program, seconds, limits);
    ProgramPlan out;
    out.lines = lines_for(program, seconds, limits);
    out.blocks = blocks_for(*out.lines, limits);
    plan_in_order(out, program, seconds, limits);
    return out;
}

ProgramPlan plan_program(const Program& program, const std::vector<double>& seconds,
                         const PlanLimits& limits) {
    if (limits.lower.memory == 0) return plan_upper(program, seconds, limits);
    // The order of the tasks and what stays in slots depend on the time of transfers. Where the
    // disk is the bottleneck, a plan for transfers at its rate may be better.
    PlanLimits slow = limits;
    slow.rates.link_rate = std::min(limits.rates.link_rate, limits.lower.rates.link_rate);
    slow.rates.two_links = false;
    ProgramPlan best;
    double least = 0;
    for (const PlanLimits& upper : {limits, slow}) {
        ProgramPlan next = plan_upper(program, seconds, upper);
        add_lower_level(next, seconds, limits);
        const Prediction time = predict(next, seconds, limits);
        if (best.lines && time.seconds >= least) continue;
        least = time.seconds;
        best = std::move(next);
        if (least < 1.002 * time.computing) break;
    }
    return best;
}

// Tiles of other programs leave their slots.
static ProgramPlan plan_loop_in(uint32_t blocks, const Program& program,
                                const std::vector<double>& seconds, const PlanLimits& limits) {
    const ProgramLines lines(program, {}, 64 * kB, seconds, limits.rates.workers);
    if (blocks < lines.least_blocks() || blocks > blocks_for(lines, limits)) return {};
    return plan_loop(program, seconds, limits, blocks);
}

ProgramPlan plan_in_slots(const Program& program, const std::vector<double>& seconds,
                          const PlanLimits& limits, const ExistingSlots& slots) {
    if (!program.loops.empty()) return plan_loop_in(slots.blocks, program, seconds, limits);
    ProgramPlan out;
    const auto make_lines = [&](const std::vector<const Tile*>& more) {
        out.lines =
            std::make_unique<ProgramLines>(program, more, 64 * kB, seconds, limits.rates.workers);
    };
    make_lines({});
    if (!out.lines->has_deferred()) make_lines(slots.others);
    const int64_t bytes =
        slots.blocks * slot_block + beside_slots(*out.lines, limits) + limits.reserved;
    if (out.lines->least_blocks() > slots.blocks || bytes > limits.memory) return {};
    out.blocks = slots.blocks;
    if (out.lines->has_deferred()) {
        plan_in_order(out, program, seconds, limits);
    } else {
        Layout homes;  // the tiles of other programs stay where they are
        for (const Tile* tile : out.lines->tiles()) homes.push_back(slots.place_of(*tile).slot);
        TaskLine line = out.lines->first_run();
        const PlacementChoice choice = default_choice(line.line, limits.rates);
        set_steady(out, plan_line(std::move(line), slots.blocks, choice, {homes, homes}), choice);
    }
    if (limits.lower.memory > 0 && !add_lower_level_in(slots, out, seconds, limits)) return {};
    return out;
}

Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const PlanLimits& limits) {
    constexpr uint32_t most_iterations = 2;  // the others take as long as a steady one
    std::vector<PlannedPart> parts;
    for (const auto& [run, times] : plan.steady_parts())
        for (uint32_t i = 0; i < std::min(times, most_iterations); ++i)
            parts.push_back({run, plan.below(*run)});
    Prediction out = predict(parts, seconds, limits.rates, limits.lower.rates);
    if (plan.iterations() <= most_iterations) return out;
    const Prediction one = predict(plan.iteration, seconds, limits.rates);
    const uint32_t more = plan.iterations() - most_iterations;
    out.seconds += more * one.seconds, out.computing += more * one.computing;
    out.link_busy += more * one.link_busy;
    return out;
}

}  // namespace nn
