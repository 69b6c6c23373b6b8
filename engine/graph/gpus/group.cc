// Groups of tasks. StarPU takes 5 to 20 us for each task, which is more than many kernels take.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "engine/graph/cost.h"
#include "engine/graph/gpus/gpus.h"
#include "engine/graph/layer.h"
#include "engine/memory/arena.h"

namespace nn {
namespace {

class Grouping {
public:
    Grouping(Program& program, const GroupLimits& limits)
        : program_(program),
          accesses_(program.accesses()),
          before_(predecessors(accesses_)),
          limits_(limits),
          group_of_(program.tasks.size()) {
        for (const Task& task : program.tasks)
            has_lanes_ = has_lanes_ || task.gpu > 0 || task.lane > 0;
    }

    std::vector<TaskGroup> run() {
        for (uint32_t t = 0; t < accesses_.tasks(); ++t) add(t);
        for (uint32_t g = 0; g < groups_.size(); ++g) close(g);
        std::vector<TaskGroup> out;
        for (const uint32_t g : order_) out.push_back(std::move(groups_[g]));
        return out;
    }

private:
    // Tasks of a group have the same key: the GPU, the lane, whether they update in place, whether
    // they add to sums of all lanes, and the layer. Without other lanes nothing waits for the end
    // of a layer.
    using Key = std::tuple<int, int, bool, bool, std::string>;
    Key key_of(uint32_t t) const {
        const Task& task = program_.tasks[t];
        return {task.gpu, task.lane, task.arg.in_place, task.is_sum,
                has_lanes_ ? block_of(task.arg.layer) : ""};
    }

    // A group that waits for another one is submitted after it. So when a task waits for an open
    // group, that group ends.
    void add(uint32_t t) {
        const Task& task = program_.tasks[t];
        const bool on_gpu = limits_.device == Device::cuda;
        const bool alone = task.gpu < 0 || !task.arg.kernel->on(limits_.device) ||
                           task.where == (on_gpu ? Where::cpu : Where::gpu);
        const auto found = alone ? open_.end() : open_.find(key_of(t));
        uint32_t own = found == open_.end() ? uint32_t(groups_.size()) : found->second;
        for (const Edge* e = before_.begin(t); e != before_.end(t); ++e)
            if (group_of_[e->task] != own) close(group_of_[e->task]);
        if (own < groups_.size() && !has_room(own, task)) {
            close(own);
            own = uint32_t(groups_.size());
        }
        if (own == groups_.size()) {
            groups_.emplace_back();
            is_open_.push_back(1);
            groups_[own].gpu = alone || !on_gpu ? int16_t(-1) : task.gpu;
            groups_[own].lane = task.lane;
            if (!alone) open_[key_of(t)] = own;
        }
        group_of_[t] = own;
        put(groups_[own], t);
        if (alone) close(own);
    }

    bool has_room(uint32_t own, const Task& task) const {
        const TaskGroup& group = groups_[own];
        double seconds = nominal_seconds(task.arg);
        for (const TaskArg& arg : group.args) seconds += nominal_seconds(arg);
        int64_t bytes = 0;
        for (const TilePtr& tile : group.tiles) bytes += int64_t(tile->bytes);
        for (int i = 0; i < task.handles; ++i) bytes += int64_t(task.tiles[i]->bytes);
        return int(group.tasks.size()) < max_group && bytes <= limits_.bytes &&
               seconds <= limits_.seconds &&
               int(group.tiles.size()) + task.handles <= max_group_tiles;
    }

    void close(uint32_t g) {
        if (!is_open_[g]) return;
        is_open_[g] = 0;
        order_.push_back(g);
        const auto at = open_.find(key_of(groups_[g].tasks.front()));
        if (at != open_.end() && at->second == g) open_.erase(at);
    }

    static void put(TaskGroup& group, const Task& task, TaskArg& arg) {
        int8_t number[max_handles];
        for (int i = 0; i < task.handles; ++i) {
            const auto at = std::find(group.tiles.begin(), group.tiles.end(), task.tiles[i]);
            number[i] = int8_t(at - group.tiles.begin());
            if (at == group.tiles.end()) {
                group.tiles.push_back(task.tiles[i]);
                group.modes.push_back(task.modes[i]);
            } else if (Mode& mode = group.modes[size_t(number[i])];
                       mode == Mode::read && task.writes(i)) {
                mode = Mode::read_write;
            }
        }
        for (int i = 0; i < arg.operands; ++i)
            if (arg.buffer_of[i] >= 0) arg.buffer_of[i] = number[arg.buffer_of[i]];
    }

    void put(TaskGroup& group, uint32_t t) {
        const Task& task = program_.tasks[t];
        const bool first = group.tasks.empty();
        group.tasks.push_back(t);
        group.args.push_back(task.arg);
        put(group, task, group.args.back());
        if (first) {
            group.all = task.arg;
            return;
        }
        group.all.flops += task.arg.flops, group.all.bytes += task.arg.bytes;
    }

    Program& program_;
    const Accesses& accesses_;
    const Edges before_;
    const GroupLimits limits_;
    bool has_lanes_ = false;
    std::vector<uint32_t> group_of_, order_;
    std::vector<TaskGroup> groups_;
    std::vector<char> is_open_;
    std::map<Key, uint32_t> open_;
};

// Temporaries die after the last group that uses them, except for the smallest ones.
void find_ends(const Program& program, std::vector<TaskGroup>& groups, int64_t kept) {
    std::unordered_map<const Tile*, size_t> last;
    for (size_t g = 0; g < groups.size(); ++g)
        for (const TilePtr& tile : groups[g].tiles) last[tile.get()] = g;
    std::vector<TilePtr> dying;
    for (const auto& tiles : program.dies_after)
        dying.insert(dying.end(), tiles.begin(), tiles.end());
    std::stable_sort(dying.begin(), dying.end(),
                     [](const TilePtr& a, const TilePtr& b) { return a->bytes < b->bytes; });
    for (const TilePtr& tile : dying) {
        kept -= int64_t(arena_bytes(tile->bytes));
        if (kept < 0) groups[last.at(tile.get())].dies_after.push_back(tile);
    }
}

}  // namespace

std::vector<TaskGroup> group_tasks(Program& program, const GroupLimits& limits, int64_t kept) {
    std::vector<TaskGroup> out = Grouping(program, limits).run();
    find_ends(program, out, kept);
    return out;
}

}  // namespace nn
