#include "engine/profile/links.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/profile/records.h"

namespace nn {

LinkTimes link_times(bool is_disk, bool writes) {
    LinkTimes out;
    std::vector<std::pair<double, double>> spans;
    for (const TransferRecord& r : profile().transfers) {
        if (r.is_disk != is_disk || r.writes != writes) continue;
        ++out.transfers;
        out.bytes += r.bytes;
        out.waited += (r.start - r.queued) * 1e-6;
        spans.push_back({r.start, r.end});
    }
    std::sort(spans.begin(), spans.end());
    double until = 0;
    for (const auto& [start, end] : spans) {
        out.busy += std::max(0.0, end - std::max(start, until)) * 1e-6;
        until = std::max(until, end);
    }
    return out;
}

}  // namespace nn
