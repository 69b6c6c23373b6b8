// Which tiles should stay in memory from one use to the next, such that they fit beside the
// operands of every task and the fewest bytes are moved. The choice follows the prices of memory
// that solve the dual of a linear program; any prices give a lower bound for the bytes (Lagrangian
// relaxation).
#pragma once
#include <memory>
#include <vector>

#include "engine/tiers/uses.h"

namespace nn {

class Retention {
public:
    // weights: of a transfer at each moment, larger where the link is busier; empty: 1. A load
    // counts at its use, a store where its value was made. similar: a retention of the same line,
    // whose prices are the start.
    Retention(const Line& line, uint32_t blocks, const LineEnds* ends,
              const std::optional<Margins>& margins = std::nullopt,
              const std::vector<double>& weights = {}, const Retention* similar = nullptr);
    ~Retention();
    Retention(const Retention&) = delete;

    const std::vector<TileUses>& uses() const { return uses_; }
    // A lower bound of the bytes that any placement moves, both ways. Only without margins and
    // weights.
    int64_t least_moved() const { return least_moved_; }
    // For each use of each tile whether the tile stays in memory until the next use. share: of the
    // memory that is filled in this way; the rest serves transfers ahead of time.
    using Kept = std::vector<std::vector<char>>;
    Kept choose(double share) const;
    // Bytes that are moved at each moment.
    std::vector<double> moved(const Kept& kept) const;

private:
    class Dual;
    const std::vector<TileUses> uses_;
    std::unique_ptr<Dual> dual_;
    int64_t least_moved_ = 0;
};

}  // namespace nn
