// A run of a program in planned memory, and the rates of the machine for it.
#pragma once
#include <vector>

#include "engine/tiers/line.h"

namespace nn {

struct TierRates {
    int workers = 1;
    double link_rate = 0;         // bytes per second of each link
    double transfer_seconds = 0;  // that a transfer takes besides
    bool two_links = false;       // one for each direction, or one for both
};

// Where a tile is: its slot in a level, or in the store below all levels.
struct TilePlace {
    uint32_t level = 0, slot = no_slot;  // its first block, or no_slot: in the store
};
constexpr TilePlace in_store;
inline bool operator==(const TilePlace& a, const TilePlace& b) {
    return a.slot == b.slot && (a.level == b.level || a.slot == no_slot);
}

// Its slot if it is in this level, or no_slot.
inline uint32_t slot_in(uint32_t level, const TilePlace& place) {
    return place.level == level ? place.slot : no_slot;
}

struct RunPlan {
    TaskLine line;
    Placement placement;
    // In the levels below (tiers/levels.h), from the upper to the lowest one. The tasks of each are
    // the transfers of the one above it.
    std::vector<RunPlan> below{};

    const RunPlan& level(size_t i) const { return i == 0 ? *this : below[i - 1]; }
    RunPlan& level(size_t i) { return i == 0 ? *this : below[i - 1]; }
    size_t levels() const { return below.size() + 1; }
    const RunPlan& lowest() const { return level(below.size()); }
    // Where a tile is before the run or after it. ends: &Placement::first or &Placement::last.
    TilePlace place_of(uint32_t tile, Layout Placement::*ends) const;
};

// The run directly after the same run. It stores no tile that it does not change: the disk has that
// value already.
RunPlan repeated(RunPlan run);

}  // namespace nn
