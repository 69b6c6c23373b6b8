// Simulates replays of a program on one rank or several: starts tasks in the order of StarPU's
// scheduler `prio`, and counts memory as the arena allocates it. Nothing is computed.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/graph/dependencies.h"
#include "engine/tile/tile.h"

namespace nn {

// The tasks of a step as a simulation needs them.
struct SimulatedStep {
    struct Block {      // the memory of a tile, by the tile's number in `accesses`
        int64_t bytes;  // as the arena rounds them
        TileKind kind;
        bool persists;  // allocated before, between and after steps
        uint32_t rank = 0;
    };
    uint32_t ranks = 1;
    // By task: the rank whose workers run it or, as `ranks` + a rank, whose link sends it; a link
    // runs one at a time. Empty: the workers of the only rank.
    std::vector<uint32_t> resources;
    std::vector<double> seconds;  // by task, like the priorities and `accesses`
    std::vector<int32_t> priorities;
    std::vector<Block> blocks;
    Accesses accesses;
    // By access: the life of the tile to which it belongs. Lives are numbered from 0, and those of
    // a tile follow each other; its memory is freed between them. Empty: each tile has one life.
    std::vector<uint32_t> lives;
};

// Of one rank.
struct SimulationResult {
    double seconds = 0;                // per step, the same on all ranks
    double busy = 0;                   // seconds of computation per step, over all workers
    double sending = 0;                // seconds per step in which it sends to other ranks
    int64_t peak = 0, lasting = 0;     // bytes: the most, and those between steps
    int64_t by_kind[tile_kinds] = {};  // of `peak`
};

// A step and its dependencies in `replays` consecutive replays. A replay is submitted when the
// replay before the previous one is done.
class Simulation {
public:
    Simulation(SimulatedStep step, int replays);
    // The results of all ranks, each with so many workers. A free worker starts the ready task of
    // the highest priority, among equals the one that became ready first. submission: seconds to
    // submit a task.
    std::vector<SimulationResult> run(int workers, double submission = 0) const {
        return run(workers, submission, step_.seconds);
    }
    // With other durations of the tasks.
    std::vector<SimulationResult> run(int workers, double submission,
                                      const std::vector<double>& seconds) const;
    const SimulatedStep& step() const { return step_; }

private:
    const SimulatedStep step_;
    const uint32_t replays_;
    Edges successors_;
    std::vector<uint32_t> predecessors_;  // their number for each task
};

}  // namespace nn
