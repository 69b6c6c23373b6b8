// The lines of a program: which of its tiles are placed in slots, in which order its tasks run, and
// when, if none waits for a transfer.
#pragma once
#include <vector>

#include "engine/graph/program.h"
#include "engine/tiers/order.h"
#include "engine/tiers/placement.h"

namespace nn {

// A run of tasks in a given order.
struct TaskLine {
    std::vector<uint32_t> tasks;  // numbers of the program's tasks
    Line line;
};

class ProgramLines {
public:
    // others: tiles that the program does not use but that have slots. least_placed: smaller tiles
    // stay in memory, because a disk is slow at small transfers. seconds: of each task.
    ProgramLines(const Program& program, const std::vector<const Tile*>& others,
                 size_t least_placed, const std::vector<double>& seconds, int workers);

    uint32_t least_blocks() const;  // of memory with which every task finds slots
    void choose_order(const OrderChoice& choice);

    // The runs: of all tasks but the deferred ones; of the deferred tasks of the run before and
    // then these; of the deferred tasks alone.
    TaskLine first_run() const;
    TaskLine next_run() const;
    TaskLine deferred_run() const;

    const std::vector<const Tile*>& tiles() const { return tiles_; }  // by number
    bool is_placed(uint32_t tile) const { return blocks_[tile] > 0; }
    bool persists(uint32_t tile) const { return persists_[tile]; }
    bool has_deferred() const { return !order_.deferred.empty(); }
    const std::vector<uint32_t>& deferred() const { return order_.deferred; }
    // Bytes of the tiles that are not placed: all, and those of temporaries.
    int64_t kept() const { return kept_; }
    int64_t kept_temporaries() const { return kept_temporaries_; }

private:
    TaskLine line_of(std::vector<uint32_t> tasks, bool follows, bool defers) const;

    const Program& program_;
    const Accesses accesses_;  // in the program's order
    const std::vector<double> seconds_;
    const int workers_;
    TaskOrder order_;
    std::vector<const Tile*> tiles_;
    std::vector<uint32_t> blocks_;  // of each tile; 0: not placed
    std::vector<char> persists_;
    std::vector<char> carried_;  // temporaries that deferred tasks use
    int64_t kept_ = 0, kept_temporaries_ = 0;
};

}  // namespace nn
