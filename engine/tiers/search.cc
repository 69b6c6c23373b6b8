#include "engine/tiers/search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "engine/tiers/retain.h"
#include "engine/tiers/search_time.h"
#include "engine/tiers/store_places.h"

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
    // is_iteration, ends: see find_line_plan().
    OrderSearch(TaskLine line, const OrderChoice& order, uint32_t blocks,
                const std::vector<double>& seconds, const TierRates& rates, SearchTime& time,
                bool is_iteration = false, const LineEnds* ends = nullptr)
        : line_(std::move(line)),
          blocks_(blocks),
          seconds_(seconds),
          rates_(rates),
          is_iteration_(is_iteration),
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
        Prediction time = predict(is_iteration_ ? repeated(run) : run, seconds_, rates_);
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
    const bool is_iteration_;
    const LineEnds* const ends_;
    SearchTime& time_;
    const Sections sections_;
    std::vector<double> weights_, waits_;  // by section
    std::unique_ptr<Retention> last_;
    SteadyPlan best_;
};

constexpr double late_shares[] = {0.2, 0.4, 0.6};

size_t searches_made = 0;

}  // namespace

size_t placement_searches() { return searches_made; }

SteadyPlan find_steady_plan(const Program& program, ProgramLines& lines, uint32_t blocks,
                            const std::vector<double>& seconds, const PlanLimits& limits) {
    constexpr int improvements = 2;
    ++searches_made;
    SearchTime time;
    std::unique_ptr<OrderSearch> best;
    const bool has_layers = !program.order_is_fixed && program.microbatches.size() > 1;
    int number = 0, orders = has_layers ? 2 : 1;
    const auto try_order = [&](const OrderChoice& order) {
        if (best && (best->is_bound_by_tasks() || time.is_over())) return false;
        time.begin_order(++number, orders);
        lines.choose_order(order);
        auto next = std::make_unique<OrderSearch>(steady_line(lines), order, blocks, seconds,
                                                  limits.rates, time);
        if (best && (next->score() >= best->score() || !fits_on_disk(next->best().run, limits)))
            return false;
        best = std::move(next);
        return true;
    };
    try_order({});
    const bool has_shares = !lines.has_deferred() && !program.order_is_fixed;
    if (has_shares) orders += int(std::size(late_shares));
    if (has_layers) try_order({true, 0});
    const bool by_layer = best->best().order.by_layer;
    for (const double late : late_shares)
        if (has_shares && !try_order({by_layer, late})) break;
    SteadyPlan out = best->best();
    for (int i = 0; i < improvements && !best->is_bound_by_tasks() && !time.is_over(); ++i) {
        best->improve();
        if (!fits_on_disk(best->best().run, limits)) break;
        out = best->best();
    }
    lines.choose_order(out.order);
    return out;
}

SteadyPlan find_line_plan(const TaskLine& line, uint32_t blocks, const std::vector<double>& seconds,
                          const TierRates& rates, SearchTime& time, bool is_iteration,
                          const LineEnds* ends) {
    ++searches_made;
    return OrderSearch(line, {}, blocks, seconds, rates, time, is_iteration, ends).best();
}

double longest_lead(const Line& line) { return line.seconds / 16; }

Margins margins_with_queue(const TierRates& rates, double seconds) {
    return {rates.transfer_seconds + seconds, 1 / rates.link_rate};
}

}  // namespace nn
