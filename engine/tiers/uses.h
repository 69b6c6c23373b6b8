// The uses of the placed tiles of a line, for the choice of a placement.
#pragma once
#include <optional>
#include <vector>

#include "engine/tiers/placement.h"

namespace nn {

// Moment m is the run of task m; the last moment is the boundary between two runs. Moments follow
// each other in a cycle.
struct TileUse {
    uint32_t moment;
    uint32_t access;  // index in the line's list; not set at the boundary
    Mode mode;
    // The value is read later, maybe after the run: it must stay in memory or be in the store.
    bool is_needed = false;
    bool may_stay = false;  // in memory until the next use
    // Moments before and after the use in which the tile is in memory too: while it is loaded,
    // while workers run the task beside later ones, and while it is stored.
    uint32_t before = 0, after = 0;
    bool must_stay = false;  // until the next use, because too little time is between them
};
struct TileUses {
    uint32_t tile;
    std::vector<TileUse> list;
    const TileUse& after(size_t i) const { return list[(i + 1) % list.size()]; }
};
inline uint32_t moments_of(const Line& line) { return line.accesses.tasks() + 1; }
// The moments between a use and the next one.
inline uint32_t moments_between(const TileUse& use, const TileUse& next, uint32_t moments) {
    return (next.moment + moments - use.moment - 1) % moments;
}

// How long a transfer takes.
struct Margins {
    double seconds = 0, seconds_per_byte = 0;
};

// ends: tiles that are in memory before or after the run are used at the boundary; others must not
// be in memory then. nullptr: any tiles may be in memory between two runs. Without margins, tasks
// run one after the other and transfers take no time.
std::vector<TileUses> uses_of(const Line& line, const LineEnds* ends,
                              const std::optional<Margins>& margins);

}  // namespace nn
