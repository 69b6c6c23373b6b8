#include "engine/tiers/stays.h"

#include <algorithm>
#include <utility>

namespace nn {

Stays::Stays(const Line& line, const std::vector<TileUses>& uses, const LineEnds* ends)
    : line_(line), uses_(uses), ends_(ends), moments_(moments_of(line)) {
    for (int run = 0; run < 2; ++run)
        for (uint32_t m = 0; m < moments_; ++m)
            begins_.push_back(run * line.seconds +
                              (m < line.begins.size() ? line.begins[m] : line.seconds));
}

const TileUse& Stays::use(const Stay& stay, uint32_t i) const {
    const auto& list = uses_[stay.uses].list;
    return list[(stay.first + i) % list.size()];
}

uint32_t Stays::gap_after(const Stay& stay, uint32_t i) const {
    return moments_between(use(stay, i), use(stay, i + 1), moments_);
}

Stay Stays::stay(uint32_t uses, uint32_t first, uint32_t count, bool is_closed) const {
    Stay out{};
    out.uses = uses, out.first = first, out.count = count;
    out.tile = uses_[uses].tile;
    out.blocks = line_.tiles[out.tile].blocks;
    out.is_closed = is_closed;
    set_times(out);
    return out;
}

Period Stays::period(const Stay& s) const {
    if (s.is_closed) return {0, moments_};
    return {s.from, 1 + (s.to + moments_ - s.from) % moments_};
}

Stays::Role Stays::role_at(const Stay& s, uint32_t moment) const {
    const auto& list = uses_[s.uses].list;
    const auto size = uint32_t(list.size());
    const auto next = std::lower_bound(list.begin(), list.end(), moment,
                                       [](const TileUse& u, uint32_t m) { return u.moment < m; });
    const auto at = uint32_t(next - list.begin());  // of the first use at this moment or later
    const uint32_t index = (at % size + size - s.first) % size, last = (index + size - 1) % size;
    if (at < size && list[at].moment == moment && index < s.count) return {Role::use, index};
    if (last + 1 < s.count || s.is_closed) return {Role::gap, last};
    return {Role::none, 0};
}

uint32_t Stays::gap_before(const Stay& s) const {
    return gap_after(s, uint32_t(uses_[s.uses].list.size()) - 1);
}

void Stays::set_times(Stay& s) const {
    s.from = use(s, 0).moment;
    s.to = use(s, s.count - 1).moment;
    s.at_boundary = lasts_at(s, moments_ - 1);
    s.at_cut = lasts_at(s, line_.cut);
    if (s.is_closed) return;
    s.loads = use(s, 0).mode != Mode::write;
    bool changes = s.at_boundary || s.at_cut;  // the store may not have the value of before the run
    for (uint32_t i = 0; i < s.count; ++i) changes = changes || use(s, i).mode != Mode::read;
    s.stores = changes && use(s, s.count - 1).is_needed;
}

bool Stays::lasts_at(const Stay& s, uint32_t moment) const {
    if (moment >= moments_ || s.is_closed) return moment < moments_;
    const uint32_t begin = (s.from + moments_ - s.lead) % moments_,
                   length = std::min(period(s).count + s.lead, moments_);
    return (moment + moments_ - begin) % moments_ < length;
}

Stay Stays::with_lead(Stay s, double seconds, uint32_t room_before, uint32_t room_after) const {
    if (s.is_closed) return s;
    uint32_t most = s.loads ? std::min(room_before, gap_before(s)) : 0;
    if (ends_) most = std::min(most, s.from);
    const uint32_t from = moments_ + s.from;
    for (s.lead = 0; s.lead < most && begins_[from] - begins_[from - s.lead] < seconds;) ++s.lead;
    const uint32_t to = s.to + 1;
    for (s.tail = 0; s.tail < room_after && begins_[to + s.tail] - begins_[to] < seconds;) ++s.tail;
    set_times(s);
    return s;
}

std::vector<Stay> Stays::all(const Retention::Kept& kept) const {
    std::vector<Stay> out;
    for (uint32_t u = 0; u < uses_.size(); ++u) {
        const auto size = uint32_t(uses_[u].list.size());
        uint32_t cut = 0;  // a use after which the tile leaves memory
        while (cut < size && kept[u][cut]) ++cut;
        if (cut == size) {
            out.push_back(stay(u, 0, size, true));
            continue;
        }
        for (uint32_t i = 0; i < size;) {
            const uint32_t first = (cut + 1 + i) % size;
            uint32_t count = 1;
            while (kept[u][(first + count - 1) % size]) ++count;
            out.push_back(stay(u, first, count, false));
            i += count;
        }
    }
    return out;
}

Stay Stays::part(const Stay& whole, uint32_t first, uint32_t count) const {
    const auto size = uint32_t(uses_[whole.uses].list.size());
    return stay(whole.uses, (whole.first + first) % size, count, false);
}

std::vector<Stay> Stays::parts(const Stay& whole) const {
    if (whole.count == 1 && !whole.is_closed) return {};
    const uint32_t gaps = whole.is_closed ? whole.count : whole.count - 1;
    uint32_t longest = 0;
    for (uint32_t i = 1; i < gaps; ++i)
        if (gap_after(whole, i) > gap_after(whole, longest)) longest = i;
    const uint32_t count = longest + 1;
    if (whole.is_closed) return {part(whole, count, whole.count)};
    return {part(whole, 0, count), part(whole, count, whole.count - count)};
}

uint32_t Stays::demanded_slot(const Stay& s) const {
    if (!ends_) return no_slot;
    for (uint32_t i = 0; i < s.count; ++i) {
        if (use(s, i).moment + 1 != moments_) continue;
        const uint32_t before = s.tile < ends_->before.size() ? ends_->before[s.tile] : no_slot;
        return before != no_slot ? before : ends_->after[s.tile];
    }
    return no_slot;
}

}  // namespace nn
