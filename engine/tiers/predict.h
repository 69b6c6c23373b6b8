// Predicts the time of runs of a plan, by a simulation of the workers and of the disk.
#pragma once
#include <vector>

#include "engine/tiers/line.h"

namespace nn {

struct TierRates {
    int workers = 1;
    double disk = 0;          // bytes per second of each link
    double disk_seconds = 0;  // that a transfer takes besides
    bool two_links = false;   // one for each direction, or one for both
};

struct RunPlan {
    TaskLine line;
    Placement placement;
};

struct Prediction {
    double seconds = 0;    // of a run that follows others
    double computing = 0;  // of these, per worker
    double disk_busy = 0;  // seconds with a transfer under way, on the link that has more
    // Seconds for which workers wait before each task of the line.
    std::vector<double> waits;
};

// seconds: of each task of the program. Runs follow each other; the first ones are not counted.
Prediction predict(const RunPlan& run, const std::vector<double>& seconds, const TierRates& rates);

}  // namespace nn
