#include "engine/tiers/plan_loop.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/graph/passes/loops.h"
#include "engine/tiers/plan_line.h"
#include "engine/tiers/predict.h"
#include "engine/tiers/store_places.h"

namespace nn {
namespace {

// The slots of the tiles that have values.
Layout with_values(const Layout& layout, const Line& line, bool Line::LineTile::*has_value) {
    Layout out = layout;
    for (uint32_t tile = 0; tile < out.size(); ++tile)
        if (!(line.tiles[tile].*has_value)) out[tile] = no_slot;
    return out;
}

// Persistent tiles that an iteration does not use stay in slots that it leaves free.
void keep_idle_tiles(RunPlan& run) {
    const Line& line = run.line.line;
    Placement& placement = run.placement;
    std::vector<char> is_used(placement.blocks, 0), is_accessed(line.tiles.size(), 0);
    const auto use = [&](uint32_t tile, uint32_t slot) {
        if (slot != no_slot) std::fill_n(is_used.begin() + slot, line.tiles[tile].blocks, 1);
    };
    for (uint32_t i = 0; i < line.accesses.list.size(); ++i) {
        is_accessed[line.accesses.list[i].tile] = 1;
        use(line.accesses.list[i].tile, placement.slots[i]);
    }
    for (const Placement::Step& step : placement.steps)
        if (step.kind != Placement::run) use(step.index, step.slot);
    for (uint32_t tile = 0; tile < line.tiles.size(); ++tile) use(tile, placement.first[tile]);
    uint32_t free = 0;
    for (uint32_t tile = 0; tile < line.tiles.size(); ++tile) {
        const auto& of = line.tiles[tile];
        if (of.blocks == 0 || !of.before || !of.after || is_accessed[tile]) continue;
        for (uint32_t end = free; end < placement.blocks && end - free < of.blocks; ++end)
            if (is_used[end]) free = end + 1;
        if (free + of.blocks > placement.blocks) return;
        placement.first[tile] = placement.last[tile] = free;
        free += of.blocks;
    }
}

// The two runs that a seam joins: before its cut and after it.
std::pair<RunPlan, RunPlan> split(const RunPlan& seam, TaskLine before, TaskLine after) {
    const Placement& whole = seam.placement;
    const uint32_t cut = seam.line.line.cut;
    const auto accesses = ptrdiff_t(seam.line.line.accesses.first[cut]);
    RunPlan out[2] = {{std::move(before), {}}, {std::move(after), {}}};
    out[0].placement.slots.assign(whole.slots.begin(), whole.slots.begin() + accesses);
    out[1].placement.slots.assign(whole.slots.begin() + accesses, whole.slots.end());
    out[0].placement.first = whole.first, out[0].placement.last = whole.at_cut;
    out[1].placement.first = whole.at_cut, out[1].placement.last = whole.last;
    bool is_after = false;
    for (Placement::Step step : whole.steps) {
        if (step.kind == Placement::run && step.index == cut) {
            is_after = true;
            continue;
        }
        Placement& to = out[is_after].placement;
        if (is_after && step.kind == Placement::run) step.index -= cut + 1;
        if (is_after) step.due -= std::min(step.due, cut + 1);
        const int64_t bytes = step.kind == Placement::run ? 0 : seam.line.line.bytes_of(step.index);
        (step.kind == Placement::load ? to.loaded : to.stored) += bytes;
        to.steps.push_back(step);
    }
    for (RunPlan& run : out) run.placement.blocks = whole.blocks;
    return {std::move(out[0]), std::move(out[1])};
}

// Persistent tiles that stay in their slots between the deferred tasks and a first run: at the end
// of that run, other tiles must be in other blocks.
Layout kept_between(const Layout& at_cut, const Layout& after, const ProgramLines& lines,
                    const RunPlan& seam) {
    const auto blocks_of = [&](uint32_t tile) { return seam.line.line.tiles[tile].blocks; };
    std::vector<uint32_t> owner(seam.placement.blocks, UINT32_MAX);  // after the first run
    for (uint32_t tile = 0; tile < after.size(); ++tile)
        if (after[tile] != no_slot) std::fill_n(owner.begin() + after[tile], blocks_of(tile), tile);
    Layout out = at_cut;
    for (uint32_t tile = 0; tile < out.size(); ++tile) {
        if (out[tile] == no_slot) continue;
        bool stays = lines.persists(tile) && (after[tile] == no_slot || after[tile] == out[tile]);
        for (uint32_t block = 0; stays && block < blocks_of(tile); ++block) {
            const uint32_t other = owner[out[tile] + block];
            stays = other == UINT32_MAX || other == tile;
        }
        if (!stays) out[tile] = no_slot;
    }
    return out;
}

class LoopPlanner {
public:
    LoopPlanner(const Program& program, const std::vector<double>& seconds,
                const PlanLimits& limits, const ExistingSlots* slots)
        : program_(program), seconds_(seconds), limits_(limits), slots_(slots) {}

    // One microbatch after the other, which needs the least room on the disk; then more and more of
    // them layer by layer.
    ProgramPlan best() {
        constexpr uint32_t fewest = 4;  // iterations; fewer are planned one by one
        const uint32_t iterations = program_.loops[0].iterations;
        const bool is_cut = iterations >= fewest && program_.loops.size() == 1;
        if (!is_cut || !limits_.below.empty()) return planned({}, {});
        std::vector<uint32_t> groups;
        for (uint32_t group = 2; group * 3 <= iterations + 1; group *= 2) groups.push_back(group);
        const auto orders = int(1 + groups.size());
        search_.begin_order(1, orders);
        if (!try_cut({0, 1, 1}, {})) return {};
        for (size_t i = 0; i < groups.size() && !has_to_end(); ++i) {
            const uint32_t group = groups[i], head = group - 1,
                           tail = group + (iterations - head) % group;
            search_.begin_order(int(i) + 2, orders);
            if (!try_cut({head, group, tail}, {true, 0})) break;
        }
        const bool updates_follow = !best_.lines->has_deferred();
        for (const double late : {0.2, 0.4, 0.6})
            if (!updates_follow || has_to_end() || !try_cut(cut_, {order_.by_layer, late})) break;
        return std::move(best_);
    }

private:
    bool has_to_end() { return time_.seconds < 1.002 * time_.computing || search_.is_over(); }

    bool try_cut(const LoopCut& cut, const OrderChoice& order) {
        ProgramPlan next = planned(cut, order);
        if (!next.lines) return false;
        if (best_.lines && bytes_beyond_disk(next, limits_) > 0) return false;
        const Prediction time = predict(next, next.seconds(seconds_), limits_);
        if (best_.lines && score_of(time) >= score_of(time_)) return false;
        best_ = std::move(next), time_ = time, cut_ = cut, order_ = order;
        search_.report(time.seconds);
        return true;
    }

    ProgramPlan planned(const LoopCut& cut, const OrderChoice& order) {
        ProgramPlan out = cut_plan(program_, seconds_, limits_, cut, slots_);
        const bool is_first = !best_.lines;
        if (!out.lines) {
            if (is_first && !slots_) refuse(*out.cut, out.cut->seconds, limits_);
        } else if (!out.lines->has_loop()) {
            plan_in_order(out, *out.cut, out.cut->seconds, limits_);
        } else {
            out.choice.order = order;
            out.lines->choose_order(order);
            plan_parts(out);
        }
        return out;
    }

    void plan_parts(ProgramPlan& out) {
        const std::vector<double>& seconds = out.cut->seconds;
        const TierRates& rates = limits_.rates;
        SteadyPlan steady =
            find_line_plan(out.lines->iteration_run(), out.blocks, seconds, rates, search_, true);
        if (!steady.exists()) fail("a task needs more slots than there are");
        out.iteration = std::move(steady.run);
        keep_idle_tiles(out.iteration);
        out.next_iteration = repeated(out.iteration);
        TaskLine line = out.lines->seam();
        const Layout& between = out.iteration.placement.first;
        const LineEnds ends{with_values(between, line.line, &Line::LineTile::before),
                            with_values(between, line.line, &Line::LineTile::after)};
        PlacementChoice choice = default_choice(line.line, rates);
        SteadyPlan seam = find_line_plan(line, out.blocks, seconds, rates, search_, false, &ends);
        if (seam.exists())
            choice = seam.choice;
        else
            seam.run = plan_line(std::move(line), out.blocks, choice, ends);
        out.least_moved = out.iterations() * steady.least_moved + seam.least_moved;
        place_seam(out, seam.run, choice, ends);
        require_correct_runs(out);
    }

    static void place_seam(ProgramPlan& out, const RunPlan& seam, const PlacementChoice& choice,
                           const LineEnds& ends) {
        const ProgramLines& lines = *out.lines;
        if (!lines.has_deferred()) {
            std::tie(out.tail, out.first) = split(seam, lines.tail_run(), lines.first_run());
            return;
        }
        std::tie(out.tail, out.next) = split(seam, lines.tail_run(), lines.next_run());
        const Layout& at_cut = seam.placement.at_cut;
        const Layout persistent = kept_between(at_cut, ends.after, lines, seam);
        out.first = plan_line(lines.first_run(), out.blocks, choice, {persistent, ends.after});
        out.last = plan_line(lines.deferred_run(), out.blocks, choice, {at_cut, persistent});
    }

    const Program& program_;
    const std::vector<double>& seconds_;
    const PlanLimits& limits_;
    const ExistingSlots* const slots_;
    SearchTime search_;
    ProgramPlan best_;
    Prediction time_;
    LoopCut cut_{};
    OrderChoice order_;
};

}  // namespace

ProgramPlan cut_plan(const Program& program, const std::vector<double>& seconds,
                     const PlanLimits& limits, const LoopCut& cut, const ExistingSlots* slots) {
    auto trial = cut_copy(program, seconds, cut);
    ProgramPlan out = unplaced_plan(*trial, trial->seconds, limits, slots);
    out.cut = std::move(trial);
    out.choice.cut = cut;
    return out;
}

ProgramPlan plan_loop(const Program& program, const std::vector<double>& seconds,
                      const PlanLimits& limits, const ExistingSlots* slots) {
    return LoopPlanner(program, seconds, limits, slots).best();
}

}  // namespace nn
