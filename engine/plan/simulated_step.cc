#include "engine/plan/simulated_step.h"

#include <unordered_map>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/graph/passes/loops.h"
#include "engine/machine/ranks.h"
#include "engine/memory/arena.h"

namespace nn {
namespace {

// The lives of tiles: those that are private to the iterations of a loop have one in each.
class Lives {
public:
    // number: of the next life, over all programs.
    Lives(const Program& program, uint32_t& number) : number_(number) {
        for (const Program::Loop& loop : program.loops)
            private_.merge(private_tiles(program, loop));
    }
    uint32_t of(const Tile* tile, uint32_t iteration, const Program::Loop* loop) {
        const auto [at, is_new] = lives_.try_emplace(tile, Life{iteration, number_});
        Life& life = at->second;
        if (!is_new && loop && life.iteration != iteration && private_.count(tile))
            life = {iteration, number_};
        if (life.number == number_) ++number_;
        return life.number;
    }

private:
    struct Life {
        uint32_t iteration, number;
    };
    std::unordered_set<const Tile*> private_;
    std::unordered_map<const Tile*, Life> lives_;  // the latest ones
    uint32_t& number_;
};

// Adds the tiles and tasks of several parts, which are separate even where they share tiles: each
// rank has its own value of a tile.
class Steps {
public:
    Steps(const Parts& parts, const TaskTimes& times, uint32_t iterations)
        : parts_(parts), times_(times), iterations_(iterations), numbers_(parts.size()) {
        step_.ranks = uint32_t(parts.size());
        for (const Program* part : parts) lives_.emplace_back(*part, life_);
    }

    SimulatedStep steps() {
        for (uint32_t rank = 0; rank < step_.ranks; ++rank)
            for (const auto* tensors :
                 {&parts_[rank]->inputs, &parts_[rank]->outputs, &parts_[rank]->lasting})
                for (const TilePtr& tile : tiles_of(*tensors)) add_lasting(*tile, rank);
        if (step_.ranks == 1)
            add_whole();
        else
            add_parts();
        step_.accesses.tiles = uint32_t(step_.blocks.size());
        return std::move(step_);
    }

private:
    uint32_t number_of(const Tile& tile, uint32_t rank, bool persists) {
        const auto [at, is_new] = numbers_[rank].emplace(&tile, uint32_t(step_.blocks.size()));
        if (is_new)
            step_.blocks.push_back({int64_t(arena_bytes(tile.bytes)), tile.kind, persists, rank});
        return at->second;
    }
    // Whether its rank uses them or not; but not what only other ranks keep. A single part is this
    // rank's.
    void add_lasting(const Tile& tile, uint32_t rank) {
        const int keeper = step_.ranks == 1 ? ranks().rank : int(rank);
        if (tile.only_owner && tile.owner != keeper) return;
        number_of(tile, rank, true);
    }

    void add_accesses(const Task& task, uint32_t rank, uint32_t iteration = 0,
                      const Program::Loop* loop = nullptr) {
        for (int i = 0; i < task.handles; ++i) {
            const Tile& tile = *task.tiles[i];
            step_.accesses.add(number_of(tile, rank, tile.persists()), task.modes[i]);
            step_.lives.push_back(lives_[rank].of(&tile, iteration, loop));
        }
    }
    void end_task(uint32_t resource, double seconds, int32_t priority) {
        step_.accesses.end_task();
        step_.seconds.push_back(seconds);
        step_.priorities.push_back(priority);
        step_.resources.push_back(resource);
    }
    void add_task(const Task& task, uint32_t rank, uint32_t iteration = 0,
                  const Program::Loop* loop = nullptr) {
        add_accesses(task, rank, iteration, loop);
        const bool is_transfer = task.is_transfer();
        const int team =
            planned_gpus() > 0 || !task.arg.in_team || !task.splits ? 1 : planned_workers();
        end_task(is_transfer ? step_.ranks + rank : rank, times_.seconds(task) / team,
                 task.priority - later_priority(loop, iteration));
    }
    void add_whole() {
        for_each_run(
            *parts_[0],
            [&](size_t t, uint32_t iteration, const Program::Loop* loop) {
                add_task(parts_[0]->tasks[t], 0, iteration, loop);
            },
            iterations_);
    }

    // One task of each rank in turn. A transfer waits until both of its ends are next; all ranks
    // have their transfers in the order of their tags.
    void add_parts() {
        std::vector<size_t> next(parts_.size(), 0);
        for (bool is_done = false, is_stuck = false; !is_done;) {
            if (is_stuck) fail("plan: the parts of the ranks do not fit together");
            is_done = is_stuck = true;
            for (uint32_t rank = 0; rank < step_.ranks; ++rank) {
                if (next[rank] == parts_[rank]->tasks.size()) continue;
                is_done = false;
                const Task& task = parts_[rank]->tasks[next[rank]];
                if (task.is_transfer() && !add_transfer(task, rank, next)) continue;
                if (!task.is_transfer()) add_task(task, rank), ++next[rank];
                is_stuck = false;
            }
        }
    }
    // Returns false if the receiver has other tasks before it.
    bool add_transfer(const Task& send, uint32_t rank, std::vector<size_t>& next) {
        if (send.transfer != Task::Transfer::send) return false;
        const auto peer = uint32_t(send.peer);
        if (next[peer] == parts_[peer]->tasks.size()) return false;
        const Task& receive = parts_[peer]->tasks[next[peer]];
        if (receive.transfer != Task::Transfer::receive || receive.tag != send.tag) return false;
        add_accesses(send, rank);
        add_accesses(receive, peer);
        end_task(step_.ranks + rank, times_.seconds(send), send.priority);
        ++next[rank], ++next[peer];
        return true;
    }

    const Parts& parts_;
    const TaskTimes& times_;
    const uint32_t iterations_;
    SimulatedStep step_;
    std::vector<std::unordered_map<const Tile*, uint32_t>> numbers_;  // by rank
    uint32_t life_ = 0;
    std::vector<Lives> lives_;  // by rank
};

}  // namespace

SimulatedStep simulated_step(const Parts& parts, const TaskTimes& times, uint32_t iterations) {
    return Steps(parts, times, iterations).steps();
}

}  // namespace nn
