#include "engine/tiers/uses.h"

#include <algorithm>
#include <utility>

namespace nn {
namespace {

bool is_in(const Layout& layout, uint32_t tile) {
    return tile < layout.size() && layout[tile] != no_slot;
}

// The uses within the run. Whatever follows the last one is set later. At a cut, a tile that lasts
// must have its value in memory or below, even if the next run replaces it unread.
std::vector<TileUses> uses_in_run(const Line& line) {
    std::vector<TileUses> out(line.tiles.size());
    for (uint32_t tile = 0; tile < out.size(); ++tile) out[tile].tile = tile;
    for (uint32_t task = 0; task < line.accesses.tasks(); ++task)
        for (const auto* a = line.accesses.begin(task); a != line.accesses.end(task); ++a) {
            if (!line.is_placed(a->tile)) continue;
            auto& list = out[a->tile].list;
            if (!list.empty()) {
                TileUse& before = list.back();
                const bool is_cut = before.moment < line.cut && line.cut < task;
                before.may_stay = a->mode != Mode::write;
                before.is_needed = before.may_stay || (is_cut && line.tiles[a->tile].after);
            }
            list.push_back({task, uint32_t(a - line.accesses.list.data()), a->mode});
        }
    return out;
}

// The use of a tile that is in memory before or after the run.
void add_boundary(TileUses& uses, const Line& line, bool before, bool after) {
    const uint32_t tasks = line.accesses.tasks();
    TileUse boundary{tasks, UINT32_MAX, after ? Mode::read : Mode::write};
    const bool lasts = line.tiles[uses.tile].after;
    if (uses.list.empty()) {
        boundary.is_needed = before && lasts;
        boundary.may_stay = before && after;
    } else {
        boundary.is_needed = boundary.may_stay = before && uses.list[0].mode != Mode::write;
        uses.list.back().is_needed = after || lasts;
        uses.list.back().may_stay = after;
    }
    uses.list.push_back(boundary);
}

// The times of the moments of three runs.
class Clock {
public:
    explicit Clock(const Line& line) : moments_(moments_of(line)) {
        for (int run = 0; run < 3; ++run) {
            for (const double begin : line.begins) begins_.push_back(run * line.seconds + begin);
            for (const double end : line.ends) ends_.push_back(run * line.seconds + end);
            begins_.push_back((run + 1) * line.seconds), ends_.push_back((run + 1) * line.seconds);
        }
    }
    // The number of earlier moments that are under way within these seconds before the moment.
    uint32_t moments_before(uint32_t moment, double seconds) const {
        const auto first = begins_.begin(), at = first + moments_ + moment;
        const auto later = std::upper_bound(first, at + 1, *at - seconds);
        return later == first ? moments_ : uint32_t(at + 1 - later);
    }
    // The number of later moments that begin before this one has ended, or within some seconds
    // after that.
    uint32_t moments_after(uint32_t moment, double seconds) const {
        const auto at = begins_.begin() + moments_ + moment;
        const auto next =
            std::lower_bound(at + 1, begins_.end(), ends_[moments_ + moment] + seconds);
        return uint32_t(next - at - 1);
    }

private:
    const uint32_t moments_;
    std::vector<double> begins_, ends_;
};

void add_margins(TileUses& uses, const Line& line, const Clock& clock, const LineEnds* ends,
                 const Margins& margins) {
    const uint32_t moments = moments_of(line);
    const double transfer =
        margins.seconds + margins.seconds_per_byte * double(line.bytes_of(uses.tile));
    const bool changes = std::any_of(uses.list.begin(), uses.list.end(),
                                     [](const TileUse& use) { return use.mode != Mode::read; });
    for (TileUse& use : uses.list) {
        const bool loads = use.mode != Mode::write, stores = changes && use.is_needed;
        use.before = clock.moments_before(use.moment, loads ? transfer : 0);
        use.after = clock.moments_after(use.moment, stores ? transfer : 0);
        if (!ends) continue;
        use.before = std::min(use.before, use.moment);
        use.after = std::min(use.after, moments - std::min(moments, use.moment + 2));
    }
    for (size_t i = 0; i < uses.list.size(); ++i) {
        TileUse& use = uses.list[i];
        const TileUse& next = uses.after(i);
        use.must_stay =
            use.may_stay && moments_between(use, next, moments) <= use.after + next.before;
    }
}

}  // namespace

std::vector<TileUses> uses_of(const Line& line, const LineEnds* ends,
                              const std::optional<Margins>& margins) {
    std::optional<Clock> clock;
    if (margins) clock.emplace(line);
    std::vector<TileUses> out;
    for (TileUses& uses : uses_in_run(line)) {
        const auto& tile = line.tiles[uses.tile];
        if (tile.blocks == 0) continue;
        const bool before = ends && is_in(ends->before, uses.tile),
                   after = ends && is_in(ends->after, uses.tile);
        if (before || after) {
            add_boundary(uses, line, before, after);
        } else if (!uses.list.empty()) {
            TileUse& last = uses.list.back();
            last.is_needed = tile.after;
            last.may_stay = !ends && tile.before && tile.after && uses.list[0].mode != Mode::write;
        }
        if (uses.list.empty()) continue;
        if (margins) add_margins(uses, line, *clock, ends, *margins);
        out.push_back(std::move(uses));
    }
    return out;
}

}  // namespace nn
