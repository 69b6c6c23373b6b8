// Which GPU runs each task. A lane is a tile of tokens: its tasks use each other's results, so they
// run on one GPU. What tasks of several lanes add to, such as a gradient, moves from GPU to GPU in
// the order of the additions, and ends at the owner of the parameter.
#include <algorithm>
#include <map>
#include <numeric>

#include "engine/graph/gpus/gpus.h"
#include "engine/graph/passes/owners.h"

namespace nn {
namespace {

class Placement {
public:
    Placement(Program& program, int gpus)
        : program_(program),
          accesses_(program.accesses()),
          gpus_(gpus),
          lane_of_(accesses_.tiles, nobody),
          gpu_of_(accesses_.tiles, nobody),
          is_shared_(accesses_.tiles, 0) {}

    void run() {
        begin_lanes();
        for (uint32_t t = 0; t < accesses_.tasks(); ++t) follow_lane(t);
        divide_updates();
        for (uint32_t t = accesses_.tasks(); t-- > 0;) follow_users(t);
    }

private:
    const Accesses::Access& access(uint32_t t, int i) const { return accesses_.begin(t)[i]; }

    // The tiles of inputs that are cut as the tokens are, without those that other ranks use. In a
    // step with microbatches, each has its own tokens.
    void begin_lanes() {
        int64_t tiles = 1;
        for (const Tensor& input : program_.inputs) tiles = std::max(tiles, input.tiles());
        std::map<int64_t, std::vector<uint32_t>> used;  // of all inputs, by their place in them
        for (const Tensor& input : program_.inputs)
            for (int64_t i = 0; input.tiles() == tiles && i < tiles; ++i)
                if (const auto at = accesses_.numbers.find(input.tile(i).get());
                    at != accesses_.numbers.end())
                    used[i].push_back(at->second);
        int together = std::max(1, int(used.size()));
        if (const auto& microbatches = program_.microbatches; !microbatches.empty()) {
            const int in_each = microbatches[0].tiles;
            if (in_each >= gpus_ && together % in_each == 0) together = in_each;
        }
        for (int i = 0; const auto& [place, numbers] : used) {
            for (const uint32_t number : numbers) lane_of_[number] = i % together;
            ++i;
        }
        lanes_ = together;
    }
    int gpu_of_lane(int lane) const { return part_of(lane, lanes_, gpus_); }

    // The lane of most of what the task reads; of accumulators only if it reads nothing else.
    int lane_of(uint32_t t) const {
        std::map<int, std::pair<int, size_t>> votes;
        const Task& task = program_.tasks[t];
        for (int i = 0; i < task.handles; ++i) {
            const int lane = lane_of_[access(t, i).tile];
            if (lane == nobody || task.modes[i] == Mode::write) continue;
            auto& [reads, bytes] = votes[lane];
            reads += task.modes[i] == Mode::read;
            bytes += task.tiles[i]->bytes;
        }
        int best = nobody;
        for (const auto& [lane, vote] : votes)
            if (best == nobody || std::pair(vote.first > 0, vote.second) >
                                      std::pair(votes[best].first > 0, votes[best].second))
                best = lane;
        return best;
    }

    void follow_lane(uint32_t t) {
        Task& task = program_.tasks[t];
        task.gpu = nobody, task.lane = 0;
        const int lane = lane_of(t);
        if (lane != nobody) task.lane = int16_t(lane), task.gpu = int16_t(gpu_of_lane(lane));
        for (int i = 0; i < task.handles - task.gates; ++i) {
            const uint32_t tile = access(t, i).tile;
            if (!task.writes(i) || task.tiles[i]->persists()) continue;
            if (task.modes[i] == Mode::write && !is_shared_[tile])
                lane_of_[tile] = lane;
            else if (lane_of_[tile] != lane)
                is_shared_[tile] = 1, lane_of_[tile] = nobody;
        }
    }

    // Tasks that change the same persistent tiles have one owner.
    bool is_update(uint32_t t) const {
        const Task& task = program_.tasks[t];
        if (task.gpu != nobody && !task.arg.in_place) return false;
        for (int i = 0; i < task.handles; ++i)
            if (changes_parameter(task, i)) return true;
        return false;
    }
    static bool changes_parameter(const Task& task, int i) {
        const TileKind kind = task.tiles[i]->kind;
        return task.writes(i) && task.tiles[i]->persists() &&
               (kind == weights || kind == optimizer_state);
    }

    uint32_t number_of(const Task& task) const { return uint32_t(&task - program_.tasks.data()); }

    void divide_updates() {
        std::vector<Change> updates;
        for (uint32_t t = 0; t < accesses_.tasks(); ++t) {
            if (!is_update(t)) continue;
            const Task& task = program_.tasks[t];
            size_t bytes = 0;
            for (int i = 0; i < task.handles; ++i)
                if (changes_parameter(task, i)) bytes += task.tiles[i]->bytes;
            updates.push_back({&task, bytes});
        }
        divide_changes(
            std::move(updates), gpus_, [&](const Task& task) { return gpu_of_update(task); },
            [&](const Task& task, int owner) { return give_to(number_of(task), owner); });
    }
    int gpu_of_update(const Task& task) const {
        int owner = nobody;
        for (int i = 0; i < task.handles; ++i)
            if (changes_parameter(task, i))
                owner = std::max(owner, gpu_of_[access(number_of(task), i).tile]);
        return owner;
    }
    size_t give_to(uint32_t t, int owner) {
        Task& task = program_.tasks[t];
        task.gpu = int16_t(owner), task.lane = 0;
        size_t out = 0;
        for (int i = 0; i < task.handles; ++i) {
            int& gpu = gpu_of_[access(t, i).tile];
            if (!changes_parameter(task, i) || gpu != nobody) continue;
            gpu = owner;
            out += task.tiles[i]->bytes;
        }
        return out;
    }

    // From the last task to the first: a task without a place runs where most bytes of its tiles
    // are used later.
    void follow_users(uint32_t t) {
        Task& task = program_.tasks[t];
        if (task.gpu == nobody) {
            std::vector<size_t> bytes(size_t(gpus_), 0);
            for (int i = 0; i < task.handles; ++i) {
                const int lane = lane_of_[access(t, i).tile];
                const int gpu = lane != nobody ? gpu_of_lane(lane) : gpu_of_[access(t, i).tile];
                if (gpu != nobody) bytes[size_t(gpu)] += task.tiles[i]->bytes;
            }
            task.gpu = int16_t(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
        }
        for (int i = 0; i < task.handles; ++i)
            if (int& gpu = gpu_of_[access(t, i).tile]; gpu == nobody && !task.tiles[i]->persists())
                gpu = task.gpu;
    }

    Program& program_;
    const Accesses& accesses_;
    const int gpus_;
    int lanes_ = 1;
    std::vector<int> lane_of_;  // of each temporary; nobody: of all lanes, or of none
    std::vector<int> gpu_of_;   // where later tasks use it
    std::vector<char> is_shared_;
};

}  // namespace

void place_on_gpus(Program& program, int gpus) { Placement(program, gpus).run(); }

}  // namespace nn
