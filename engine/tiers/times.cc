// When workers run the tasks of a line if no transfer delays them, for the margins of placements.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "engine/tiers/placement.h"

namespace nn {

// A free worker takes the first task of the line that is ready, if it is less than `window` tasks
// after the first unfinished one. The slots of later tasks are rarely free yet.
void Line::set_times(const std::vector<double>& seconds_of, int workers) {
    const Edges before = predecessors(accesses), after = successors(before);
    const uint32_t tasks = accesses.tasks(), window = 32 * uint32_t(workers);
    begins.assign(tasks, 0), ends.assign(tasks, 0);
    std::vector<uint32_t> missing;
    std::vector<char> has_ended(tasks, 0);
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (uint32_t t = 0; t < tasks; ++t) {
        missing.push_back(before.first[t + 1] - before.first[t]);
        if (missing[t] == 0) ready.push(t);
    }
    using Running = std::pair<double, uint32_t>;  // (end, task)
    std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
    seconds = 0;
    uint32_t unfinished = 0;  // the first one
    for (int free = workers; !ready.empty() || !running.empty();) {
        for (; free > 0 && !ready.empty() && ready.top() < unfinished + window;
             --free, ready.pop()) {
            begins[ready.top()] = seconds;
            running.push({seconds + seconds_of[ready.top()], ready.top()});
        }
        const auto [end, task] = running.top();
        running.pop();
        ends[task] = seconds = end;
        has_ended[task] = 1;
        while (unfinished < tasks && has_ended[unfinished]) ++unfinished;
        ++free;
        for (const Edge* edge = after.begin(task); edge != after.end(task); ++edge)
            if (--missing[edge->task] == 0) ready.push(edge->task);
    }
    for (uint32_t t = 1; t < tasks; ++t) ends[t] = std::max(ends[t], ends[t - 1]);
    for (uint32_t t = tasks; t-- > 1;) begins[t - 1] = std::min(begins[t - 1], begins[t]);
}

}  // namespace nn
