#include "engine/tiers/retain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/interrupts.h"

namespace nn {
namespace {

constexpr uint32_t most_sections = 256;

// From a use of a tile to the next one: the tile stays in memory, or is loaded again.
struct Gap {
    uint32_t tile, use;  // indices in the list of uses
    uint32_t from, to;   // moments; to <= from: in the next run
    uint32_t next;       // moment of the next use
    double load;         // the weight of the load if the tile leaves memory
    double transfers;    // with the store, if there would be none otherwise
};

// A value of a tile with the gaps until it is replaced. It is stored once if it ever leaves memory.
struct Value {
    double bytes;
    double store;  // the weight of its store; 0: the store has it in any case
    uint32_t made;
    std::vector<Gap> gaps;
};

void add_values(const TileUses& uses, uint32_t index, double bytes, uint32_t moments,
                const std::vector<double>& weights, std::vector<Value>& out) {
    const auto weight = [&](const TileUse& use) {
        return weights.empty() ? 1 : weights[use.moment];
    };
    const auto& list = uses.list;
    size_t first = 0;  // change
    while (first < list.size() && list[first].mode == Mode::read) ++first;
    const bool changes = first < list.size();
    for (size_t i = 0; i < list.size(); ++i) {
        const size_t at = (changes ? first + i : i) % list.size();
        if (i == 0 || list[at].mode != Mode::read)
            out.push_back({bytes, changes ? weight(list[at]) : 0, list[at].moment, {}});
        if (!list[at].may_stay || list[at].must_stay) continue;
        const TileUse& next = uses.after(at);
        out.back().gaps.push_back({index, uint32_t(at),
                                   (list[at].moment + list[at].after) % moments,
                                   (next.moment + moments - next.before % moments) % moments,
                                   next.moment, weight(next), 1});
    }
}

// Room at each moment, of which gaps take a part.
class RangeMinimum {
public:
    explicit RangeMinimum(const std::vector<double>& room) : moments_(uint32_t(room.size())) {
        while (leaves_ < moments_) leaves_ *= 2;
        least_.assign(2 * leaves_, 0);
        taken_.assign(2 * leaves_, 0);
        std::copy(room.begin(), room.end(), least_.begin() + leaves_);
        for (uint32_t i = leaves_; i-- > 1;) least_[i] = std::min(least_[2 * i], least_[2 * i + 1]);
    }
    // Returns false if there is not enough room.
    bool take(const Gap& gap, double bytes) {
        const bool wraps = gap.to <= gap.from;
        const uint32_t end = wraps ? moments_ : gap.to;
        if (least(gap.from + 1, end, 1, 0, leaves_) < bytes) return false;
        if (wraps && least(0, gap.to, 1, 0, leaves_) < bytes) return false;
        reduce(gap.from + 1, end, bytes, 1, 0, leaves_);
        if (wraps) reduce(0, gap.to, bytes, 1, 0, leaves_);
        return true;
    }

private:
    // In [from, to); the node stands for [begin, end).
    double least(uint32_t from, uint32_t to, uint32_t node, uint32_t begin, uint32_t end) const {
        if (to <= begin || end <= from) return std::numeric_limits<double>::infinity();
        if (from <= begin && end <= to) return least_[node];
        const uint32_t middle = (begin + end) / 2;
        return std::min(least(from, to, 2 * node, begin, middle),
                        least(from, to, 2 * node + 1, middle, end)) -
               taken_[node];
    }
    void reduce(uint32_t from, uint32_t to, double bytes, uint32_t node, uint32_t begin,
                uint32_t end) {
        if (to <= begin || end <= from) return;
        if (from <= begin && end <= to) {
            least_[node] -= bytes;
            taken_[node] += bytes;
            return;
        }
        const uint32_t middle = (begin + end) / 2;
        reduce(from, to, bytes, 2 * node, begin, middle);
        reduce(from, to, bytes, 2 * node + 1, middle, end);
        least_[node] = std::min(least_[2 * node], least_[2 * node + 1]) - taken_[node];
    }

    const uint32_t moments_;
    uint32_t leaves_ = 1;
    std::vector<double> least_, taken_;  // taken: of both halves
};

}  // namespace

class Retention::Dual {
public:
    struct Choice {
        const Gap* gap;
        double bytes, profit;
        uint32_t moments;
    };
    const std::vector<Choice>& best_choices() const { return best_choices_; }

    Dual(const Line& line, const std::vector<TileUses>& uses, uint32_t blocks,
         const std::vector<double>& weights)
        : moments_(moments_of(line)),
          memory_(double(blocks * slot_block)),
          in_use_(moments_, 0),
          sections_(std::min(most_sections, moments_)),
          prices_(sections_, 0),
          direction_(sections_, 0) {
        change_.assign(moments_ + 1, 0);
        for (uint32_t i = 0; i < uses.size(); ++i) {
            const auto bytes = double(line.bytes_of(uses[i].tile));
            add_in_use(uses[i], bytes);
            add_values(uses[i], i, bytes, moments_, weights, values_);
        }
        // Margins may exceed the memory: nothing can stay there, and the bound stays finite.
        double in_use = 0;
        for (uint32_t m = 0; m < moments_; ++m)
            in_use_[m] = std::min(in_use += change_[m], memory_);
    }

    void start_from(const Dual& other) {
        if (other.prices_.size() != prices_.size()) return;
        prices_ = other.prices_;
        rounds_ = 61;
    }

    // Returns the lower bound for the bytes moved.
    double solve(const std::vector<TileUses>& uses) {
        double best = 0, least_cost = std::numeric_limits<double>::infinity();
        for (int round = 0; round < rounds_; ++round) {
            check_interrupt();
            const std::vector<double> until = sums();
            const double bound = relaxed(until);
            best = std::max(best, bound);
            for (const double step : {0.05, 0.2, 0.5, 1.0}) {
                if (round % 20 != 0 && round + 1 != rounds_) break;
                order_choices(until, step);
                const double cost = cost_of(select(choices_, uses, 1));
                if (cost < least_cost) least_cost = cost, best_choices_ = choices_;
            }
            if (least_cost <= best * 1.001) break;
            raise(least_cost - bound);
        }
        return best;
    }

    // Keeps the gaps that save the most beyond their price, as long as there is room.
    Kept select(const std::vector<Choice>& choices, const std::vector<TileUses>& uses,
                double share) const {
        std::vector<double> room;
        for (double bytes : in_use_) room.push_back(memory_ * share - bytes);
        RangeMinimum left(room);
        Kept kept;
        for (const TileUses& of_tile : uses) {
            kept.emplace_back();
            for (const TileUse& use : of_tile.list) kept.back().push_back(use.must_stay);
        }
        for (const Choice& choice : choices)
            kept[choice.gap->tile][choice.gap->use] = left.take(*choice.gap, choice.bytes);
        return kept;
    }

    std::vector<double> moved(const Kept& kept) const {
        std::vector<double> out(moments_, 0);
        for (const Value& value : values_) {
            bool leaves = false;
            for (const Gap& gap : value.gaps) {
                if (kept[gap.tile][gap.use]) continue;
                leaves = true;
                out[gap.next] += value.bytes;
            }
            if (leaves && value.store > 0) out[value.made] += value.bytes;
        }
        return out;
    }

private:
    // The bytes of a tile at its uses, with their margins.
    void add_in_use(const TileUses& uses, double bytes) {
        std::vector<std::pair<uint32_t, uint32_t>> ranges;  // [begin, end)
        for (size_t i = 0; i < uses.list.size(); ++i) {
            const TileUse& use = uses.list[i];
            const TileUse& next = uses.after(i);
            const uint32_t between = moments_between(use, next, moments_);
            uint32_t after = use.must_stay ? between : std::min(use.after, between);
            const uint32_t count = std::min(moments_, use.before + 1 + after);
            const uint32_t begin = (use.moment + moments_ - use.before % moments_) % moments_;
            ranges.emplace_back(begin, std::min(begin + count, moments_));
            if (begin + count > moments_) ranges.emplace_back(0, begin + count - moments_);
        }
        std::sort(ranges.begin(), ranges.end());
        uint32_t until = 0;
        for (const auto& [begin, end] : ranges) {
            if (end <= until) continue;
            change_[std::max(until, begin)] += bytes;
            change_[end] -= bytes;
            until = end;
        }
    }
    uint32_t section_of(uint32_t moment) const {
        return uint32_t(uint64_t(moment) * sections_ / moments_);
    }
    std::vector<double> sums() const {
        std::vector<double> out{0};
        for (uint32_t m = 0; m < moments_; ++m) out.push_back(out.back() + prices_[section_of(m)]);
        return out;
    }

    // The least cost if memory is bought at these prices, without its limit.
    double relaxed(const std::vector<double>& until) {
        change_.assign(moments_ + 1, 0);
        double cost = 0;
        for (Value& value : values_) {
            double kept = 0, evicted = value.store;
            for (const Gap& gap : value.gaps) {
                kept += price_of(gap, until);
                evicted += std::min(gap.load, price_of(gap, until));
            }
            const bool stays = kept <= evicted;
            cost += value.bytes * std::min(kept, evicted);
            for (Gap& gap : value.gaps) {
                if (stays || price_of(gap, until) < gap.load) keep(gap, value.bytes);
                gap.transfers = gap.load + (stays ? value.store : 0);
            }
        }
        excess_.assign(sections_, 0);
        double kept = 0;
        for (uint32_t m = 0; m < moments_; ++m) {
            kept += change_[m];
            const uint32_t section = section_of(m);
            cost -= prices_[section] * (memory_ - in_use_[m]);
            excess_[section] += kept + in_use_[m] - memory_;
        }
        return cost;
    }

    // Profits within a step count as equal: the shortest gaps leave the most room then.
    void order_choices(const std::vector<double>& until, double step) {
        choices_.clear();
        for (const Value& value : values_)
            for (const Gap& gap : value.gaps)
                choices_.push_back({&gap, value.bytes,
                                    std::floor((gap.transfers - price_of(gap, until)) / step),
                                    (gap.to + moments_ - gap.from - 1) % moments_});
        std::stable_sort(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
            return a.profit != b.profit ? a.profit > b.profit : a.moments < b.moments;
        });
    }
    double cost_of(const Kept& kept) const {
        double out = 0;
        for (const Value& value : values_) {
            double loads = 0;
            for (const Gap& gap : value.gaps)
                if (!kept[gap.tile][gap.use]) loads += gap.load;
            out += value.bytes * (loads > 0 ? loads + value.store : 0);
        }
        return out;
    }

    double price_of(const Gap& gap, const std::vector<double>& until) const {
        return until[gap.to] - until[gap.from + 1] + (gap.to <= gap.from ? until.back() : 0);
    }
    void keep(const Gap& gap, double bytes) {
        const bool wraps = gap.to <= gap.from;
        change_[gap.from + 1] += bytes;
        change_[wraps ? moments_ : gap.to] -= bytes;
        if (!wraps) return;
        change_[0] += bytes;
        change_[gap.to] -= bytes;
    }

    // A step along the subgradient of the bound, as long as B. T. Polyak's rule says for a bound
    // that may rise by `missing`.
    void raise(double missing) {
        constexpr double inertia = 0.6;
        double squares = 0;
        for (uint32_t s = 0; s < sections_; ++s) {
            const bool falls_below_zero = prices_[s] == 0 && excess_[s] < 0;
            direction_[s] = inertia * direction_[s] + (falls_below_zero ? 0 : excess_[s]);
            squares += direction_[s] * direction_[s];
        }
        if (squares == 0) return;
        for (uint32_t s = 0; s < sections_; ++s)
            prices_[s] = std::max(0.0, prices_[s] + missing / squares * direction_[s]);
    }

    const uint32_t moments_;
    const double memory_;
    std::vector<double> in_use_;  // bytes of the operands at each moment
    std::vector<Value> values_;
    std::vector<Choice> choices_, best_choices_;
    int rounds_ = 300;
    const uint32_t sections_;  // parts of the line with one price each
    std::vector<double> prices_, excess_, direction_;
    std::vector<double> change_;  // of the bytes that stay in memory, at each moment
};

Retention::Retention(const Line& line, uint32_t blocks, const LineEnds* ends,
                     const std::optional<Margins>& margins, const std::vector<double>& weights,
                     const Retention* similar)
    : uses_(uses_of(line, ends, margins)),
      dual_(std::make_unique<Dual>(line, uses_, blocks, weights)) {
    if (similar) dual_->start_from(*similar->dual_);
    least_moved_ = int64_t(dual_->solve(uses_));
}

Retention::~Retention() = default;

std::vector<double> Retention::moved(const Kept& kept) const { return dual_->moved(kept); }

Retention::Kept Retention::choose(double share) const {
    if (share > 0) return dual_->select(dual_->best_choices(), uses_, share);
    Kept none;
    for (const TileUses& uses : uses_) none.emplace_back(uses.list.size(), 0);
    return none;
}

}  // namespace nn
