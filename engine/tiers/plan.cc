#include "engine/tiers/plan.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/tiers/retain.h"

namespace nn {
namespace {

constexpr size_t kB = 1 << 10;

// The share of the memory for tiles between their uses, and seconds for transfers.
struct Choice {
    double share = 1, lead = 0;
};

void require(const std::string& problem) {
    if (!problem.empty()) fail("the placement of a program is wrong: %s", problem.c_str());
}

TaskLine steady_line(const ProgramLines& lines) {
    return lines.has_deferred() ? lines.next_run() : lines.first_run();
}

// Leads to try: from the transfer of one of the largest tiles to a part of a run. A longer lead
// moves transfers to times when the disk is idle, but fewer tiles stay in their slots.
std::vector<double> leads_for(const Line& line, const PlanLimits& limits) {
    int64_t largest = 0;
    for (uint32_t tile = 0; tile < line.tiles.size(); ++tile)
        largest = std::max(largest, line.bytes_of(tile));
    const double transfer = double(largest) / limits.rates.disk;
    std::vector<double> out{transfer};
    while (out.back() > 0 && out.back() * 4 < line.seconds / 8) out.push_back(out.back() * 4);
    return out;
}

// Places a line whose ends are given; with less and less memory for tiles between their uses if the
// slots do not fit.
RunPlan plan_line(TaskLine line, uint32_t blocks, Choice choice, const LineEnds& ends) {
    RunPlan out{std::move(line), {}};
    const Retention retention(out.line.line, blocks, &ends);
    for (;;) {
        if (const auto packed = pack(out.line.line, blocks, retention, choice.share, &ends)) {
            out.placement = packed->place(choice.lead);
            require(check_placement(out.line.line, out.placement));
            return out;
        }
        if (choice.share == 0) fail("a task needs more slots than there are");
        choice.share = choice.share > 0.1 ? choice.share * 0.9 : 0;
    }
}

int64_t least_bytes(const ProgramLines& lines) { return lines.least_blocks() * slot_block; }

// Small tiles stay in memory if they are few.
std::unique_ptr<ProgramLines> lines_for(const Program& program, const std::vector<double>& seconds,
                                        const PlanLimits& limits) {
    const int64_t room = limits.ram - limits.reserved;
    std::unique_ptr<ProgramLines> out;
    for (const size_t least_placed : {64 * kB, 16 * kB, 4 * kB}) {
        out = std::make_unique<ProgramLines>(program, std::vector<const Tile*>{}, least_placed,
                                             seconds, limits.rates.workers);
        if (out->kept() < room / 8 && out->kept() + least_bytes(*out) <= room) break;
    }
    const int64_t needed = out->kept() + least_bytes(*out) + limits.reserved;
    if (needed > limits.ram)
        throw OutOfMemory(format(
            "out of memory: a plan for this program needs at least %s of RAM (%lld bytes: %s for "
            "slots, %s for small tiles, inputs and outputs, %s in reserve), but memory.ram "
            "(nn.memory_tiers) is %s",
            human_bytes(double(needed)).c_str(), static_cast<long long>(needed),
            human_bytes(double(least_bytes(*out))).c_str(),
            human_bytes(double(out->kept())).c_str(), human_bytes(double(limits.reserved)).c_str(),
            human_bytes(double(limits.ram)).c_str()));
    return out;
}

struct Best {
    Prediction time;
    Choice choice;
    OrderChoice order;
    RunPlan run;

    bool exists() const { return time.seconds > 0; }
};

// The plan of one order of the tasks, improved in rounds.
class Search {
public:
    Search(const ProgramLines& lines, const OrderChoice& order, uint32_t blocks,
           const std::vector<double>& seconds, const PlanLimits& limits)
        : order_(order), blocks_(blocks), seconds_(seconds), limits_(limits) {
        run_.line = steady_line(lines);
    }

    // Tries shares of memory and leads. Later rounds give transfers more weight where workers wait
    // for them. Returns whether the best plan was improved.
    bool try_round(Best& best) {
        const Line& line = run_.line.line;
        const Retention retention(line, blocks_, nullptr, weights_);
        if (weights_.empty()) least_moved = retention.least_moved();
        Best fastest;
        for (const double share : {1.0, 0.9, 0.75, 0.5}) try_share(fastest, retention, share);
        for (const double share : {0.3, 0.15, 0.0})
            if (!fastest.exists()) try_share(fastest, retention, share);
        add_waits(fastest.time.waits);
        if (best.exists() && fastest.time.seconds >= best.time.seconds) return false;
        best = fastest;
        return true;
    }

    int64_t least_moved = 0;  // bytes, by any placement

private:
    void try_share(Best& best, const Retention& retention, double share) {
        const auto packed = pack(run_.line.line, blocks_, retention, share, nullptr);
        if (!packed) return;
        for (const double lead : leads_for(run_.line.line, limits_)) {
            run_.placement = packed->place(lead);
            const Prediction time = predict(run_, seconds_, limits_.rates);
            if (!best.exists() || time.seconds < best.time.seconds)
                best = {time, {share, lead}, order_, run_};
        }
    }

    void add_waits(const std::vector<double>& waits) {
        constexpr uint32_t sections = 24;
        const Line& line = run_.line.line;
        const uint32_t tasks = line.accesses.tasks();
        const auto section = [&](uint32_t task) {
            return uint32_t(uint64_t(task) * sections / tasks);
        };
        std::vector<double> waiting(sections, 0), running(sections, 0);
        for (uint32_t task = 0; task < tasks; ++task) {
            waiting[section(task)] += task < waits.size() ? waits[task] : 0;
            running[section(task)] += line.end_of(task) - line.starts[task];
        }
        weights_.resize(tasks + 1, 1);
        for (uint32_t task = 0; task < tasks; ++task) {
            const uint32_t s = section(task);
            weights_[task] *= 1 + 0.5 * waiting[s] / (waiting[s] + running[s] + 1e-12);
        }
    }

    const OrderChoice order_;
    const uint32_t blocks_;
    const std::vector<double>& seconds_;
    const PlanLimits& limits_;
    RunPlan run_;
    std::vector<double> weights_;  // of transfers
};

// Leaves the best order in `lines`.
Best choose(const Program& program, ProgramLines& lines, uint32_t blocks,
            const std::vector<double>& seconds, const PlanLimits& limits, int64_t& least_moved) {
    constexpr int rounds = 4;
    Best best;
    std::unique_ptr<Search> search;
    const auto try_order = [&](const OrderChoice& order) {
        lines.choose_order(order);
        auto next = std::make_unique<Search>(lines, order, blocks, seconds, limits);
        if (next->try_round(best)) search = std::move(next);
    };
    try_order({});
    const bool all_are_late = lines.has_deferred();
    if (program.microbatches.size() > 1) try_order({true, 0});
    const bool by_layer = best.order.by_layer;
    for (const double late : {0.2, 0.4})
        if (!all_are_late && best.time.disk_busy > 0) try_order({by_layer, late});
    lines.choose_order(best.order);
    for (int round = 1; round < rounds && best.time.disk_busy > 0; ++round) search->try_round(best);
    least_moved = search->least_moved;
    return best;
}

// The runs before and after the steady ones.
void plan_other_runs(ProgramPlan& plan, const Choice& choice) {
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

void set_steady(ProgramPlan& plan, RunPlan run, const Choice& choice) {
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
    const int64_t blocks = (limits.ram - limits.reserved - out.lines->kept()) / slot_block;
    out.blocks = uint32_t(std::min<int64_t>(blocks, no_slot - 1));
    Best best = choose(program, *out.lines, out.blocks, seconds, limits, out.least_moved);
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
    const int64_t bytes = blocks * slot_block + out.lines->kept() + limits.reserved;
    if (out.lines->least_blocks() > blocks || bytes > limits.ram) return {};
    out.blocks = blocks;
    if (out.lines->has_deferred()) {
        Best best = choose(program, *out.lines, blocks, seconds, limits, out.least_moved);
        set_steady(out, std::move(best.run), best.choice);
        return out;
    }
    Layout homes;  // the tiles of other programs stay where they are
    for (const Tile* tile : out.lines->tiles()) homes.push_back(slot_of(*tile));
    TaskLine line = out.lines->first_run();
    const double lead = leads_for(line.line, limits).front();
    const Choice choice{1, lead};
    set_steady(out, plan_line(std::move(line), blocks, choice, {homes, homes}), choice);
    return out;
}

Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const TierRates& rates) {
    return predict(plan.steady(), seconds, rates);
}

}  // namespace nn
