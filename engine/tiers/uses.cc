#include "engine/tiers/uses.h"

namespace nn {
namespace {

bool is_in(const Layout& layout, uint32_t tile) {
    return tile < layout.size() && layout[tile] != no_slot;
}

// The uses within the run. Whatever follows the last one is set later.
std::vector<TileUses> uses_in_run(const Line& line) {
    std::vector<TileUses> out(line.tiles.size());
    for (uint32_t tile = 0; tile < out.size(); ++tile) out[tile].tile = tile;
    for (uint32_t task = 0; task < line.accesses.tasks(); ++task)
        for (const auto* a = line.accesses.begin(task); a != line.accesses.end(task); ++a) {
            if (!line.is_placed(a->tile)) continue;
            auto& list = out[a->tile].list;
            if (!list.empty())
                list.back().is_needed = list.back().may_stay = a->mode != Mode::write;
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

}  // namespace

std::vector<TileUses> uses_of(const Line& line, const LineEnds* ends) {
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
        if (!uses.list.empty()) out.push_back(std::move(uses));
    }
    return out;
}

}  // namespace nn
