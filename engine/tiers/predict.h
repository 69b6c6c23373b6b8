// Predicts the time of runs of a plan, by a simulation of the workers and of the links.
#pragma once
#include <vector>

#include "engine/tiers/program_plan.h"

namespace nn {

struct Prediction {
    double seconds = 0;    // of a run that follows others
    double computing = 0;  // of these, per worker
    // By level: seconds with a transfer under way, on the link that has more.
    std::vector<double> link_busy;
    // Seconds for which workers wait before each task of the lines.
    std::vector<double> waits;
};

// Of runs that consist of these parts, one after the other. seconds: of each task of the program.
// Runs follow each other; the first ones are not counted. rates: of the levels; levels below these
// count as fast enough.
Prediction predict(const std::vector<const RunPlan*>& parts, const std::vector<double>& seconds,
                   const std::vector<TierRates>& rates);
inline Prediction predict(const RunPlan& run, const std::vector<double>& seconds,
                          const TierRates& rates) {
    return predict({&run}, seconds, std::vector<TierRates>{rates});
}

// Of a run of a whole plan; seconds: of the tasks of the program that it is for (plan.cut, if that
// exists).
Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const PlanLimits& limits);

}  // namespace nn
