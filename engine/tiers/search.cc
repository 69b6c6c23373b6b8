#include "engine/tiers/search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <utility>

#include "engine/tiers/retain.h"
#include "engine/tiers/search_time.h"

namespace nn {
namespace {

// Parts of a run, of equal time.
class Sections {
public:
    static constexpr uint32_t count = 24;
    explicit Sections(const Line& line) : line_(line) {}
    double seconds() const { return line_.seconds / count; }
    uint32_t of(uint32_t moment) const {
        if (moment >= line_.begins.size()) return count - 1;
        return std::min(count - 1, uint32_t(line_.begins[moment] / line_.seconds * count));
    }

private:
    const Line& line_;
};

TaskLine steady_line(const ProgramLines& lines) {
    return lines.has_deferred() ? lines.next_run() : lines.first_run();
}

// The placements of one order.
class OrderSearch {
public:
    // ends: see place().
    OrderSearch(TaskLine line, const OrderChoice& order, uint32_t blocks,
                const std::vector<double>& seconds, const TierRates& rates, SearchTime& time,
                const LineEnds* ends = nullptr)
        : line_(std::move(line)),
          blocks_(blocks),
          seconds_(seconds),
          rates_(rates),
          ends_(ends),
          time_(time),
          sections_(line_.line),
          weights_(Sections::count, 1) {
        best_.order = order;
        best_.least_moved = Retention(line_.line, blocks, nullptr).least_moved();
        try_margins();
        if (is_bound_by_tasks() || time_.is_over()) return;
        balance();
        try_margins();
    }

    const SteadyPlan& best() const { return best_; }
    double score() const { return score_of(best_.time); }
    bool is_bound_by_tasks() const { return best_.time.seconds < 1.002 * best_.time.computing; }
    // Gives transfers more weight where workers waited for them in the last placements.
    void improve() {
        for (uint32_t s = 0; s < Sections::count; ++s)
            weights_[s] *= 1 + 0.5 * waits_[s] / (waits_[s] + sections_.seconds());
        try_margins();
    }

private:
    std::unique_ptr<Retention> retention(const Margins& margins) {
        std::vector<double> weights;
        for (uint32_t m = 0; m < moments_of(line_.line); ++m)
            weights.push_back(weights_[sections_.of(m)]);
        return std::make_unique<Retention>(line_.line, blocks_, ends_, margins, weights,
                                           last_.get());
    }

    // Lowers the weights of transfers in sections whose transfers take less time than their tasks.
    void balance() {
        constexpr int rounds = 6;
        constexpr double share = 0.9, least_weight = 0.1;
        const Margins margins = margins_with_queue(rates_, line_.line.seconds / 128);
        std::vector<double> best = weights_;
        double least = 0;
        for (int round = 0; round < rounds; ++round) {
            last_ = retention(margins);
            std::vector<double> transfers(Sections::count, 0);
            const auto moved = last_->moved(last_->choose(share));
            for (uint32_t m = 0; m < moved.size(); ++m)
                transfers[sections_.of(m)] += moved[m] / rates_.link_rate;
            double bound = 0;
            for (const double seconds : transfers) bound += std::max(seconds, sections_.seconds());
            if (least == 0 || bound < least) least = bound, best = weights_;
            for (uint32_t s = 0; s < Sections::count; ++s) {
                const double slack = 0.1 * sections_.seconds();
                const double load = (transfers[s] + slack) / (sections_.seconds() + slack);
                weights_[s] = std::clamp(weights_[s] * std::sqrt(load), least_weight, 1.0);
            }
        }
        weights_ = best;
    }

    // Wider margins let tasks wait less; but fewer tiles stay in memory between their uses.
    void try_margins() {
        const double run = line_.line.seconds;
        SteadyPlan fastest;
        for (const double queue : {0.0, run / 512, run / 128, run / 32}) {
            if (has_to_end(fastest)) break;
            const Margins margins = margins_with_queue(rates_, queue);
            last_ = retention(margins);
            try_shares(fastest, margins);
        }
        if (!fastest.exists()) return;
        note_waits(fastest.time.waits);
        if (best_.exists() && score_of(fastest.time) >= score_of(best_.time)) return;
        fastest.order = best_.order, fastest.least_moved = best_.least_moved;
        best_ = std::move(fastest);
    }

    // Falling shares, from a little more than the best one so far, until they are no better.
    void try_shares(SteadyPlan& fastest, const Margins& margins) {
        constexpr double most_above_best = 1.18, much_worse = 1.03;
        const double lead = longest_lead(line_.line);
        const SteadyPlan& known = fastest.exists() ? fastest : best_;
        const double most = known.exists() ? most_above_best * known.choice.place.share : 1;
        double before = 0;
        for (const double share : {1.0, 0.95, 0.9, 0.8, 0.65, 0.5, 0.3, 0.15, 0.0}) {
            if (share > most && share > 0) continue;
            if ((share < 0.5 && fastest.exists()) || has_to_end(fastest)) return;
            const double score = try_share(fastest, {margins, {share, lead}});
            if (before > 0 && score > before) return;
            if (fastest.exists() && score > much_worse * score_of(fastest.time)) return;
            before = score;
        }
    }

    bool has_to_end(const SteadyPlan& found) const { return found.exists() && time_.is_over(); }

    // Returns the score of the placement, 0 if there is none.
    double try_share(SteadyPlan& best, PlacementChoice choice) {
        auto placed = place(line_.line, blocks_, *last_, choice.place, ends_);
        if (!placed) return 0;
        RunPlan run{line_, std::move(*placed)};
        Prediction time = predict(run, seconds_, rates_);
        time_.report(best_.exists() ? std::min(best_.time.seconds, time.seconds) : time.seconds);
        const double score = score_of(time);
        if (!best.exists() || score < score_of(best.time))
            best.run = std::move(run), best.choice = choice, best.time = std::move(time);
        return score;
    }

    void note_waits(const std::vector<double>& waits) {
        waits_.assign(Sections::count, 0);
        for (uint32_t task = 0; task < waits.size(); ++task)
            waits_[sections_.of(task)] += waits[task] / rates_.workers;
    }

    const TaskLine line_;
    const uint32_t blocks_;
    const std::vector<double>& seconds_;
    const TierRates& rates_;
    const LineEnds* const ends_;
    SearchTime& time_;
    const Sections sections_;
    std::vector<double> weights_, waits_;  // by section
    std::unique_ptr<Retention> last_;
    SteadyPlan best_;
};

// A hash of all on which a search depends. Lines of two programs are equal if only the tiles and
// the number of the first task differ.
class Fingerprint {
public:
    uint64_t value() const { return hash_; }
    void add(uint64_t number) {
        hash_ = (hash_ ^ number) * 0x9E3779B97F4A7C15u;
        hash_ ^= hash_ >> 32;
    }
    void add(double number) {
        uint64_t bits;
        std::memcpy(&bits, &number, sizeof bits);
        add(bits);
    }
    void add(const TaskLine& run, uint64_t first_task, const std::vector<double>& seconds) {
        const Line& line = run.line;
        add(uint64_t(run.tasks.size()));
        for (uint32_t position = 0; position < run.tasks.size(); ++position) {
            add(run.tasks[position] - first_task);
            add(seconds_at(run, position, seconds));
            add(uint64_t(line.accesses.first[position + 1]));
        }
        for (const auto& access : line.accesses.list)
            add(uint64_t(access.tile) * 4 + uint64_t(access.mode));
        add(uint64_t(line.cut));
        add(uint64_t(line.tiles.size()));
        for (const auto& tile : line.tiles)
            add(tile.blocks ? uint64_t(tile.blocks) * 4 + 2 * tile.before + tile.after
                            : uint64_t(0));
    }

    void add(const LineEnds& ends) {
        for (const Layout* layout : {&ends.before, &ends.after})
            for (const uint32_t slot : *layout) add(uint64_t(slot));
    }

private:
    uint64_t hash_ = 1;
};

constexpr double late_shares[] = {0.2, 0.4, 0.6};

Fingerprint fingerprint_of(uint32_t blocks, const TierRates& rates) {
    Fingerprint out;
    for (const uint64_t number : {uint64_t(blocks), uint64_t(rates.workers)}) out.add(number);
    for (const double number : {rates.link_rate, rates.transfer_seconds, double(rates.two_links)})
        out.add(number);
    return out;
}

uint64_t fingerprint(const Program& program, ProgramLines& lines, uint32_t blocks,
                     const std::vector<double>& seconds, const TierRates& rates) {
    Fingerprint out = fingerprint_of(blocks, rates);
    const auto add_order = [&](const OrderChoice& order) {
        lines.choose_order(order);
        out.add(steady_line(lines), program.step_begin, seconds);
        return lines.has_deferred();
    };
    const bool all_are_late = add_order({});
    for (const bool by_layer : {false, true}) {
        if (by_layer && program.microbatches.size() <= 1) break;
        if (by_layer) add_order({true, 0});
        for (const double late : late_shares)
            if (!all_are_late) add_order({by_layer, late});
    }
    return out.value();
}

// The plans of the last searches, without their lines. The check at the start of a training, the
// trials of what to recompute and the run itself plan the same programs.
struct FoundPlan {
    uint64_t fingerprint;
    Placement placement;
    SteadyPlan rest;
};
std::deque<FoundPlan>& found_plans() {
    static std::deque<FoundPlan> plans;
    return plans;
}
size_t searches_made = 0;

SteadyPlan search(const Program& program, ProgramLines& lines, uint32_t blocks,
                  const std::vector<double>& seconds, const TierRates& rates) {
    constexpr int improvements = 2;
    ++searches_made;
    SearchTime time;
    std::unique_ptr<OrderSearch> best;
    const bool has_layers = program.microbatches.size() > 1;
    int number = 0, orders = has_layers ? 2 : 1;
    const auto try_order = [&](const OrderChoice& order) {
        if (best && (best->is_bound_by_tasks() || time.is_over())) return false;
        time.begin_order(++number, orders);
        lines.choose_order(order);
        auto next =
            std::make_unique<OrderSearch>(steady_line(lines), order, blocks, seconds, rates, time);
        if (best && next->score() >= best->score()) return false;
        best = std::move(next);
        return true;
    };
    try_order({});
    const bool all_are_late = lines.has_deferred();
    if (!all_are_late) orders += int(std::size(late_shares));
    if (has_layers) try_order({true, 0});
    const bool by_layer = best->best().order.by_layer;
    for (const double late : late_shares)
        if (!all_are_late && !try_order({by_layer, late})) break;
    for (int i = 0; i < improvements && !best->is_bound_by_tasks() && !time.is_over(); ++i)
        best->improve();
    return best->best();
}

}  // namespace

size_t placement_searches() { return searches_made; }

// The remembered plan with this fingerprint, without its line; or the result of search().
template <class Search> static SteadyPlan remembered(uint64_t fingerprint, Search search) {
    constexpr size_t most_plans = 32;
    auto& plans = found_plans();
    const auto at = std::find_if(plans.begin(), plans.end(),
                                 [&](const FoundPlan& p) { return p.fingerprint == fingerprint; });
    if (at != plans.end()) {
        SteadyPlan out = at->rest;
        out.run.placement = at->placement;
        return out;
    }
    SteadyPlan out = search();
    out.run.line = {};
    SteadyPlan rest = out;
    rest.run = {};
    plans.push_back({fingerprint, out.run.placement, std::move(rest)});
    if (plans.size() > most_plans) plans.pop_front();
    return out;
}

SteadyPlan find_steady_plan(const Program& program, ProgramLines& lines, uint32_t blocks,
                            const std::vector<double>& seconds, const TierRates& rates) {
    SteadyPlan out = remembered(fingerprint(program, lines, blocks, seconds, rates),
                                [&] { return search(program, lines, blocks, seconds, rates); });
    lines.choose_order(out.order);
    out.run.line = steady_line(lines);
    return out;
}

SteadyPlan find_line_plan(const TaskLine& line, uint32_t blocks, const std::vector<double>& seconds,
                          const TierRates& rates, SearchTime& time, const LineEnds* ends) {
    Fingerprint all = fingerprint_of(blocks, rates);
    all.add(line, 0, seconds);
    if (ends) all.add(*ends);
    SteadyPlan out = remembered(all.value(), [&] {
        return OrderSearch(line, {}, blocks, seconds, rates, time, ends).best();
    });
    out.run.line = line;
    return out;
}

double longest_lead(const Line& line) { return line.seconds / 16; }

Margins margins_with_queue(const TierRates& rates, double seconds) {
    return {rates.transfer_seconds + seconds, 1 / rates.link_rate};
}

}  // namespace nn
