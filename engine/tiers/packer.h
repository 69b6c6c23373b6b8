// Slots for the stays of a line. Long stays are packed from the bottom of the memory, short ones
// from the top, so that they do not lie in each other's way.
#pragma once
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "engine/tiers/stays.h"

namespace nn {

struct PlacedStay {
    Stay stay;
    uint32_t slot;
    // Moments before the stay, and after it, in which nothing else needs the slot.
    uint32_t room_before, room_after;
};

class Packer {
public:
    // has_margins: nothing else uses the slot of a stay in its margins, if there is room.
    Packer(const Line& line, const Stays& stays, uint32_t blocks, bool has_margins);

    // Stays are cut where they do not fit. Returns nothing if a task needs more memory than there
    // is.
    std::optional<std::vector<PlacedStay>> pack(const std::vector<Stay>& all);

private:
    using Waiting = std::pair<uint32_t, Stay>;  // with its number of moments
    struct Later {
        bool operator()(const Waiting& a, const Waiting& b) const;
    };
    struct Cost {  // of making the memory of a block free at a moment
        uint32_t begin, end;
        double cost;
    };

    void push(const Stay& stay) { queue_.push({stays_.period(stay).count, stay}); }
    Packing::Use use_of(const Stay& stay, double share) const;
    void add(const Stay& stay, Packing::Use use, uint32_t slot);
    bool put(const Stay& stay);
    void trim(const Period& period, uint32_t begin, uint32_t end);
    bool put_parts(const Stay& stay);
    bool force(const Stay& stay);
    bool force_task(const Stay& stay);
    std::vector<Cost> costs_at(uint32_t moment);
    uint32_t cheapest(const std::vector<Cost>& costs, uint32_t blocks) const;
    void clear(uint32_t moment, uint32_t begin, uint32_t end);
    void leave(uint32_t number, uint32_t moment);
    void keep_parts(uint32_t number, uint32_t moment, uint32_t uses_before, uint32_t uses_after);
    std::vector<PlacedStay> placed() const;

    const Line& line_;
    const Stays& stays_;
    const uint32_t blocks_, moments_;
    const bool has_margins_;
    Packing packing_;
    std::vector<PlacedStay> placed_;  // by number in the packing
    std::priority_queue<Waiting, std::vector<Waiting>, Later> queue_;
};

}  // namespace nn
