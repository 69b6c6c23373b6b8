// Predicts the time of runs of a plan, by a simulation of the workers and of the disk.
#pragma once
#include <vector>

#include "engine/tiers/line.h"

namespace nn {

struct TierRates {
    int workers = 1;
    double disk = 0;          // bytes per second, both directions together
    double disk_seconds = 0;  // that a transfer takes besides
};

struct RunPlan {
    TaskLine line;
    Placement placement;
};

struct Prediction {
    double seconds = 0;    // of a run that follows others
    double computing = 0;  // of these, per worker
    double disk_busy = 0;  // seconds with a transfer under way
    // Seconds for which workers wait before each task of the line.
    std::vector<double> waits;
};

// seconds: of each task of the program. Runs follow each other; the first ones are not counted.
Prediction predict(const RunPlan& run, const std::vector<double>& seconds, const TierRates& rates);

}  // namespace nn
