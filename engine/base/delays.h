// Random delays, for tests: NNLUA_DELAYS=SEED lets every transfer of the disk and a share of the
// tasks wait up to some milliseconds, so that they run in orders that are rare otherwise.
#pragma once
#include <cstdlib>

namespace nn {

inline const bool has_delays = std::getenv("NNLUA_DELAYS") != nullptr;
// Waits at a share of its calls, 10 us to 4 ms. Any thread.
void wait_randomly(double share);

}  // namespace nn
