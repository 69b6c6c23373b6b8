// Counters of the session. Submitting thread only.
#pragma once
#include <cstdint>

namespace nn {

struct Stats {
    int64_t tasks = 0, replayed_tasks = 0;
    double replay_seconds = 0;  // CPU time of submitting replayed tasks
    double starpu_seconds = 0;  // of which in StarPU's calls, estimated while profiling
    int64_t earlier_tasks = 0;  // before the numbers above were cleared
};
inline Stats counters;
inline Stats& stats() { return counters; }

}  // namespace nn
