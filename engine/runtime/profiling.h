// Profiles of the running session.
#pragma once
#include <cstdint>

#include "engine/profile/sums.h"

namespace nn {

void start_profile(int64_t limit = default_profile_limit);  // starts the session too
ProfileTotals session_totals();  // of all workers of the session; after stop_profile()

}  // namespace nn
