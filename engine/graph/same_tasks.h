// Whether two stretches of a recording do the same: recording.cc asks it of two iterations.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/graph/task.h"

namespace nn {

// Tasks, and the numbers of tiles and of random ops before them.
struct RecordedTasks {
    size_t begin, end;
    uint64_t tiles, randoms;
};
// Whether the second stretch, which follows the first, has the same tasks: on the same tiles, or,
// in the place of those that the first one creates, on those that it creates itself.
bool same_tasks(const std::vector<Task>& tasks, const RecordedTasks& first,
                const RecordedTasks& second);

}  // namespace nn
