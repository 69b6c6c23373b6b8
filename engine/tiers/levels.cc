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

// Each transfer of a level above another one follows the steps of the lower one on which it
// depends.
class Merge {
public:
    Merge(const RunPlan& run, size_t levels) : run_(run), next_(levels, 0) {
        for (size_t level = levels; level-- > 0;)
            add_before(level, run.level(level).placement.steps.size());
    }
    std::vector<LevelStep> steps;

private:
    // Adds the steps of a level before this one.
    void add_before(size_t level, size_t end) {
        const RunPlan& run = run_.level(level);
        for (size_t& i = next_[level]; i < end; ++i) {
            const Placement::Step& step = run.placement.steps[i];
            if (level == 0 || step.kind != Placement::run) {
                add(level, i, no_slot);
                continue;
            }
            const uint32_t transfer = run.line.tasks[step.index];
            add_before(level - 1, transfer);
            // It accesses one tile, so the accesses of the line have the numbers of its tasks.
            add(level - 1, transfer, run.placement.slots[step.index]);
            next_[level - 1] = transfer + 1;
        }
    }
    void add(size_t level, size_t step, uint32_t slot_below) {
        steps.push_back({&run_.level(level).placement.steps[step], uint32_t(level), slot_below});
    }

    const RunPlan& run_;
    std::vector<size_t> next_;  // by level: the first step that is not added
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

std::vector<LevelStep> merged_steps(const RunPlan& run, size_t levels) {
    return Merge(run, levels).steps;
}

}  // namespace nn
