// A run of a program on one level of planned memory, and the rates of the machine for it.
#pragma once
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
};

// The run directly after the same run. It stores no tile that it does not change: the disk has that
// value already.
RunPlan repeated(RunPlan run);

}  // namespace nn
