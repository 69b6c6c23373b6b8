#include "engine/tiers/levels.h"

#include <algorithm>

namespace nn {
namespace {

// When the tasks of a line begin, by moment; moments after the last one belong to the next run.
class Schedule {
public:
    Schedule(const Line& line, double pace) : line_(line), pace_(pace) {}
    double begin_of(uint32_t moment) const {
        const auto tasks = uint32_t(line_.begins.size());
        return pace_ * (moment < tasks ? line_.begins[moment] : line_.seconds);
    }
    double seconds() const { return pace_ * line_.seconds; }

private:
    const Line& line_;
    const double pace_;
};

}  // namespace

TaskLine lower_line(const RunPlan& upper, double pace, const TierRates& rates) {
    const Line& above = upper.line.line;
    const Placement& placement = upper.placement;
    const Schedule schedule(above, pace);
    TaskLine out;
    Line& line = out.line;
    line.accesses.tiles = uint32_t(above.tiles.size());
    for (uint32_t i = 0; i < above.tiles.size(); ++i) {
        const auto& tile = above.tiles[i];
        line.tiles.push_back({tile.blocks, tile.before && placement.first[i] == no_slot,
                              tile.after && placement.last[i] == no_slot});
    }
    uint32_t moment = 0;
    double end = 0;
    for (uint32_t number = 0; number < placement.steps.size(); ++number) {
        const Placement::Step& step = placement.steps[number];
        if (step.kind == Placement::run) {
            ++moment;
            continue;
        }
        out.tasks.push_back(number);
        line.accesses.add(step.index, step.kind == Placement::load ? Mode::read : Mode::write);
        line.accesses.end_task();
        const double begin = schedule.begin_of(moment), bytes = double(above.bytes_of(step.index));
        end = std::max(end, begin + rates.transfer_seconds + bytes / rates.link_rate);
        line.begins.push_back(begin), line.ends.push_back(end);
    }
    line.seconds = std::max(schedule.seconds(), end);
    return out;
}

std::vector<LevelStep> merged_steps(const RunPlan& upper, const RunPlan* lower) {
    std::vector<LevelStep> out;
    const auto& above = upper.placement.steps;
    size_t next = 0;  // step above
    for (size_t i = 0; lower && i < lower->placement.steps.size(); ++i) {
        const Placement::Step& step = lower->placement.steps[i];
        if (step.kind != Placement::run) {
            out.push_back({&step, true, no_slot});
            continue;
        }
        const uint32_t transfer = lower->line.tasks[step.index];
        for (; next < transfer; ++next) out.push_back({&above[next], false, no_slot});
        // A transfer accesses one tile, so the accesses of the line have the numbers of its tasks.
        out.push_back({&above[next++], false, lower->placement.slots[step.index]});
    }
    for (; next < above.size(); ++next) out.push_back({&above[next], false, no_slot});
    return out;
}

}  // namespace nn
