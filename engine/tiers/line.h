// The lines of a program: which of its tiles are placed in slots, in which order its tasks run, and
// when, if none waits for a transfer.
#pragma once
#include <span>
#include <vector>

#include "engine/graph/program.h"
#include "engine/tiers/order.h"
#include "engine/tiers/placement.h"

namespace nn {

// A run of tasks in a given order.
struct TaskLine {
    std::vector<uint32_t> tasks;  // numbers of the program's tasks; no_task: the line's cut
    Line line;
};
constexpr uint32_t no_task = UINT32_MAX;
inline double seconds_at(const TaskLine& line, uint32_t position,
                         const std::vector<double>& seconds_of_tasks) {
    const uint32_t task = line.tasks[position];
    return task == no_task ? 0 : seconds_of_tasks[task];
}

class ProgramLines {
public:
    // others: tiles that the program does not use but that have slots; those that are placed keep
    // them. least_placed: smaller tiles have no slots, because a disk is slow at small transfers.
    // seconds: of each task.
    ProgramLines(const Program& program, const std::vector<const Tile*>& others,
                 size_t least_placed, const std::vector<double>& seconds, int workers);

    uint32_t least_blocks() const;  // of memory with which every task finds slots
    void choose_order(const OrderChoice& choice);

    // The runs: of all tasks but the deferred ones; of the deferred tasks of the run before and
    // then these; of the deferred tasks alone. The first two end at the loop of a program that has
    // one.
    TaskLine first_run() const;
    TaskLine next_run() const;
    TaskLine deferred_run() const;
    // With a loop: the runs of an iteration and of the tasks after the loop; and the latter with
    // the next run up to its loop, cut between them.
    TaskLine iteration_run() const;
    TaskLine tail_run() const;
    TaskLine seam() const;

    const std::vector<const Tile*>& tiles() const { return tiles_; }  // by number
    std::span<const Tile* const> others() const {
        return std::span(tiles_).subspan(accesses_.tiles);
    }
    bool is_placed(uint32_t tile) const { return blocks_[tile] > 0; }
    bool persists(uint32_t tile) const { return persists_[tile]; }
    bool has_loop() const { return !program_.loops.empty(); }
    bool has_deferred() const { return !order_.deferred.empty(); }
    const std::vector<uint32_t>& deferred() const { return order_.deferred; }
    // Bytes of the tiles that are not placed: all, and those of temporaries.
    int64_t kept() const { return kept_; }
    int64_t kept_temporaries() const { return kept_temporaries_; }

private:
    using Flags = std::vector<char>;  // of tiles
    void find_live();
    std::vector<uint32_t> next_tasks() const;
    // before, after: temporaries with values then.
    TaskLine line_of(std::vector<uint32_t> tasks, const Flags& before, const Flags& after) const;

    const Program& program_;
    const Accesses accesses_;  // in the program's order
    const std::vector<double> seconds_;
    const int workers_;
    TaskOrder order_;
    std::vector<const Tile*> tiles_;
    std::vector<uint32_t> blocks_;  // of each tile; 0: not placed
    Flags persists_, is_in_rows_;   // is_in_rows_: tasks of single iterations use it
    // Temporaries with values: none; those that deferred tasks use; at the beginning and at the end
    // of the loop; at the end of an iteration.
    Flags none_, carried_, before_loop_, after_loop_, after_iteration_;
    int64_t kept_ = 0, kept_temporaries_ = 0;
};

}  // namespace nn
