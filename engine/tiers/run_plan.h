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
};

// The run directly after the same run. It stores no tile that it does not change: the disk has that
// value already.
RunPlan repeated(RunPlan run);

}  // namespace nn
