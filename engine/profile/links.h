// Sums over the transfers of a profile, by link and direction. After stop_profile().
#pragma once
#include <cstdint>

namespace nn {

struct LinkTimes {
    int64_t transfers = 0, bytes = 0;
    // Seconds with at least one transfer under way; before the begin of each, summed.
    double busy = 0, waited = 0;
};
// Between memory and the disk, or between a GPU and RAM.
LinkTimes link_times(bool is_disk, bool writes);

}  // namespace nn
