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

class Stays {
public:
    Stays(const Line& line, const std::vector<TileUses>& uses, const LineEnds* ends);

    std::vector<Stay> all(const Retention::Kept& kept) const;  // without lead and tail
    // room: moments before the first use, and after the last, in which nothing else needs the slot.
    Stay with_lead(Stay stay, double seconds, uint32_t room_before, uint32_t room_after) const;
    Period period(const Stay& stay) const;  // from the first use to the last one
    // What remains of a stay if the tile leaves memory in its longest gap. Empty if there is none.
    std::vector<Stay> parts(const Stay& stay) const;
    // Some of the uses of a stay.
    Stay part(const Stay& stay, uint32_t first, uint32_t count) const;
    // What happens to the tile at a moment. none: it is before or after the stay.
    struct Role {
        enum Kind : uint8_t { none, use, gap } kind;
        uint32_t index;  // of the use, or of that before the gap
    };
    Role role_at(const Stay& stay, uint32_t moment) const;
    // The moments between a use and the next one.
    uint32_t gap_after(const Stay& stay, uint32_t i) const;
    const TileUse& use(const Stay& stay, uint32_t i) const;
    // Where the ends of the run demand the stay's slot to be, or no_slot.
    uint32_t demanded_slot(const Stay& stay) const;

private:
    Stay stay(uint32_t uses, uint32_t first, uint32_t count, bool is_closed) const;
    void set_times(Stay& stay) const;
    bool lasts_at(const Stay& stay, uint32_t moment) const;
    uint32_t gap_before(const Stay& stay) const;  // moments since the last use before the stay

    const Line& line_;
    const std::vector<TileUses>& uses_;
    const LineEnds* const ends_;
    const uint32_t moments_;
    std::vector<double> begins_;  // of the moments of two runs, in seconds
};

}  // namespace nn
