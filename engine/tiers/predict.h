// Predicts the time of runs of a plan, by a simulation of the workers and of the links.
#pragma once
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

struct Prediction {
    double seconds = 0;     // of a run that follows others
    double computing = 0;   // of these, per worker
    double link_busy = 0;   // seconds with a transfer under way, on the link that has more
    double lower_busy = 0;  // the same for the link of the lower level
    // Seconds for which workers wait before each task of the lines.
    std::vector<double> waits;
};

// A run, and its level below (tiers/levels.h), or null.
struct PlannedPart {
    const RunPlan* run;
    const RunPlan* below = nullptr;
};

// Of runs that consist of these parts, one after the other. seconds: of each task of the program.
// Runs follow each other; the first ones are not counted. lower: rates of the level below.
Prediction predict(const std::vector<PlannedPart>& parts, const std::vector<double>& seconds,
                   const TierRates& rates, const TierRates& lower = {});
inline Prediction predict(const RunPlan& run, const std::vector<double>& seconds,
                          const TierRates& rates) {
    return predict({{&run}}, seconds, rates);
}

// Of a run of a whole plan; seconds: of the tasks of the program that it is for (plan.cut, if that
// exists).
Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const PlanLimits& limits);

}  // namespace nn
