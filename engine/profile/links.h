// Sums over the transfers of a profile, by direction. After stop_profile().
#pragma once
#include <cstdint>

namespace nn {

struct LinkTimes {
    int64_t transfers = 0, bytes = 0;
    // Seconds with at least one transfer under way; before the begin of each, summed.
    double busy = 0, waited = 0;
};
LinkTimes link_times(bool writes);  // to the disk, or from it

}  // namespace nn
