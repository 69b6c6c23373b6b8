// Random delays, for tests: with NNLUA_DELAYS=SEED, threads that others wait for are late at times:
// workers, disks, MPI's thread, the submitting thread, the control channel, writers of files. So
// tasks, transfers and messages run in orders that are rare otherwise.
#pragma once
#include <cstdlib>

namespace nn {

inline const bool has_delays = std::getenv("NNLUA_DELAYS") != nullptr;
void wait_randomly(double share);
// Waits at a share of its calls: 10 us to 4 ms, and at one of 500 of these 20 to 200 ms. Any
// thread.
inline void delay(double share) {
    if (has_delays) wait_randomly(share);
}

}  // namespace nn
