// Groups of tasks. StarPU takes 5 to 20 us for each task, which is more than many kernels take.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

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
            contents_.emplace_back();
            is_open_.push_back(1);
            groups_[own].gpu = alone || !on_gpu ? int16_t(-1) : task.gpu;
            groups_[own].lane = task.lane;
            if (!alone) open_[key_of(t)] = own;
        }
        group_of_[t] = own;
        put(own, t);
        if (alone) close(own);
    }

    bool has_room(uint32_t own, const Task& task) const {
        const TaskGroup& group = groups_[own];
        int64_t bytes = contents_[own].bytes;
        for (int i = 0; i < task.handles; ++i) bytes += int64_t(task.tiles[i]->bytes);
        return int(group.tasks.size()) < limits_.tasks &&
               int(group.tiles.size()) + task.handles <= limits_.tiles && bytes <= limits_.bytes &&
               contents_[own].seconds + nominal_seconds(task.arg) <= limits_.seconds;
    }

    void close(uint32_t g) {
        if (!is_open_[g]) return;
        is_open_[g] = 0;
        order_.push_back(g);
        const auto at = open_.find(key_of(groups_[g].tasks.front()));
        if (at != open_.end() && at->second == g) open_.erase(at);
    }

    void put(uint32_t own, const Task& task, TaskArg& arg) {
        TaskGroup& group = groups_[own];
        int16_t number[max_handles];
        for (int i = 0; i < task.handles; ++i) {
            const auto [at, is_new] = contents_[own].number_of.try_emplace(
                task.tiles[i].get(), int16_t(group.tiles.size()));
            number[i] = at->second;
            if (is_new) {
                contents_[own].bytes += int64_t(task.tiles[i]->bytes);
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

    void put(uint32_t own, uint32_t t) {
        TaskGroup& group = groups_[own];
        contents_[own].seconds += nominal_seconds(program_.tasks[t].arg);
        const Task& task = program_.tasks[t];
        const bool first = group.tasks.empty();
        group.tasks.push_back(t);
        group.args.push_back(task.arg);
        put(own, task, group.args.back());
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
    struct Contents {
        std::unordered_map<const Tile*, int16_t> number_of;
        int64_t bytes = 0;  // of its tiles
        double seconds = 0;
    };
    std::vector<TaskGroup> groups_;
    std::vector<Contents> contents_;
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

int64_t peak_on_a_gpu(const std::vector<TaskGroup>& groups) {
    struct Gpu {
        std::unordered_set<const Tile*> tiles;
        int64_t bytes = 0;
    };
    std::map<int, Gpu> gpus;
    const TaskGroup* last = nullptr;
    int64_t most = 0;
    const auto run = [&](const TaskGroup& group) {
        Gpu& own = gpus[group.gpu];
        for (const TilePtr& tile : group.tiles)
            if (own.tiles.insert(tile.get()).second) own.bytes += int64_t(arena_bytes(tile->bytes));
        if (group.gpu >= 0) most = std::max(most, own.bytes);
        for (size_t i = 0; last && i < last->dies_after.size(); ++i) {
            const Tile* const tile = last->dies_after[i].get();
            for (auto& [number, gpu] : gpus)
                if (gpu.tiles.erase(tile)) gpu.bytes -= int64_t(arena_bytes(tile->bytes));
        }
        last = &group;
    };
    for (int time = 0; time < 2; ++time)  // what lasts is there from the second run on
        std::for_each(groups.begin(), groups.end(), run);
    return most;
}

std::vector<TaskGroup> group_tasks(Program& program, const GroupLimits& limits, int64_t kept) {
    std::vector<TaskGroup> out = Grouping(program, limits).run();
    find_ends(program, out, kept);
    return out;
}

}  // namespace nn
