// The stays of tiles in memory: from a load, or from the task that creates the tile, until it is
// stored or not needed any more.
#pragma once
#include <vector>

#include "engine/tiers/pack.h"
#include "engine/tiers/retain.h"

namespace nn {

struct Stay {
    uint32_t uses;              // of which tile: an index in the list of uses
    uint32_t first, count;      // of the uses of the tile; they may continue in the next run
    uint32_t tile, blocks = 0;  // of the line
    uint32_t from, to;          // the moments of the first and the last use
    uint32_t lead, tail;        // moments for the load before, and for the store after
    bool is_closed;             // the tile never leaves memory
    bool loads, stores, at_boundary, at_cut;
};

// The shares of the margins of each use that its tile gets at most. All are 1 at first.
class MarginLimits {
public:
    explicit MarginLimits(const std::vector<TileUses>& uses);

    void clear();  // no margins at all
    void widen();  // twice the shares
    // Halves the shares of all uses whose margins reach into the period, on this side. Returns
    // false if there are none.
    bool reduce(const std::vector<TileUses>& uses, const Period& period, uint32_t moments);
    double before(uint32_t uses, uint32_t use) const { return shares_[uses][use].before; }
    double after(uint32_t uses, uint32_t use) const { return shares_[uses][use].after; }

private:
    struct Shares {
        float before = 1, after = 1;
    };
    std::vector<std::vector<Shares>> shares_;
};

class Stays {
public:
    Stays(const Line& line, const std::vector<TileUses>& uses, const LineEnds* ends);

    std::vector<Stay> all(const Retention::Kept& kept) const;  // without lead and tail
    // room: moments before the first use, and after the last, in which nothing else needs the slot.
    Stay with_lead(Stay stay, double seconds, uint32_t room_before, uint32_t room_after) const;
    // From the first use to the last one, with a share of their margins, at most within limits.
    Period period(const Stay& stay, double margins = 0, const MarginLimits* limits = nullptr) const;
    // What remains of a stay if the tile leaves memory in its longest gap. Empty if there is none.
    std::vector<Stay> parts(const Stay& stay) const;
    const TileUse& use(const Stay& stay, uint32_t i) const;
    // Where the ends of the run demand the stay's slot to be, or no_slot.
    uint32_t demanded_slot(const Stay& stay) const;

private:
    Stay stay(uint32_t uses, uint32_t first, uint32_t count, bool is_closed) const;
    void set_times(Stay& stay) const;
    bool lasts_at(const Stay& stay, uint32_t moment) const;
    uint32_t gap_after(const Stay& stay, uint32_t i) const;  // moments
    uint32_t gap_before(const Stay& stay) const;  // moments since the last use before the stay

    const Line& line_;
    const std::vector<TileUses>& uses_;
    const LineEnds* const ends_;
    const uint32_t moments_;
    std::vector<double> begins_;  // of the moments of two runs, in seconds
};

}  // namespace nn
