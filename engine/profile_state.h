// What a profile holds, for the two files that make it: engine/profile.cc and profile_sums.cc.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "engine/profile.h"

namespace nn {

struct Profile {
    static constexpr int64_t chunk = 1024;
    std::vector<std::unique_ptr<TaskRecord[]>> chunks;  // records stay where they are
    std::vector<uint64_t> accesses;                     // 2 * tile's number + (written)
    std::vector<SpanRecord> spans;
    int64_t count = 0, limit = 0, lost = 0;
    double begin = 0, end = 0;
    uint32_t runs = 0, run_tasks = 0;
    bool in_run = false;

    // Found from the records when asked for.
    bool stale = true;
    std::vector<std::vector<uint32_t>> before;

    TaskRecord& record(int64_t i) { return chunks[size_t(i / chunk)][size_t(i % chunk)]; }
};

Profile& profile();

}  // namespace nn
