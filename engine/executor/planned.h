// A program whose tiles do not fit into RAM: its tasks run on slots, by placements that are made
// and checked before the first run. Updates that need all gradients run with the next run's first
// tasks (tiers/order.h), or when anything else needs their tiles.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/graph/program.h"
#include "engine/residency/homes.h"
#include "engine/tiers/plan.h"
#include "engine/workers/deferred.h"

namespace nn {

class PlannedRun : public DeferredTasks {
public:
    // Throws OutOfMemory if no placement exists within the bytes of RAM.
    explicit PlannedRun(Program& program);
    ~PlannedRun() override;
    PlannedRun(const PlannedRun&) = delete;

    void prepare();  // puts the tiles home; before the inputs of a run are set
    // The tasks that run: those of the program, or of a copy whose loop is cut.
    Program& tasks() { return plan_.cut ? *plan_.cut : program_; }
    // Submits the transfers and tasks. arguments: of every task of tasks(). The caller keeps those
    // of loops.
    void submit(const std::vector<TaskArg*>& arguments);
    void run_deferred() override;
    bool carries(const Tile& tile) const;  // whether deferred tasks use the temporary

private:
    // The unplaced temporaries that each task of a run uses last.
    using Dead = std::vector<std::vector<Tile*>>;
    struct Run {
        const RunPlan* plan;
        std::vector<LevelStep> steps;  // of all levels
        Dead dead;
    };
    void make_plan();
    bool plan_in_existing_slots(const std::vector<double>& seconds);
    bool slots_suffice() const;
    bool slots_are_as_planned() const;
    Run run_of(const RunPlan& plan) const;
    bool others_exist() const;
    Dead dead_in(const RunPlan& run) const;
    void make_extents();
    using Places = std::unordered_map<const Tile*, TilePlace>;
    Places places(const Run& run, Layout Placement::*end) const;
    void move_to_begin(const Run& run);
    void check_homes(const Run& run, Layout Placement::*end) const;
    void submit_run(const Run& run, const std::vector<TaskArg*>& arguments);
    void submit_loop(const std::vector<TaskArg*>& arguments);
    void submit_rows(uint32_t iteration, const std::vector<TaskArg*>& arguments);
    void drop_plan();
    void submit_transfer_step(const LevelStep& step);
    void submit_task(const Run& run, uint32_t position, const std::vector<TaskArg*>& arguments);
    void end_run(const Run& run);
    bool placed_persistent(uint32_t tile) const;

    Program& program_;
    ProgramPlan plan_;
    Run first_{}, next_{}, last_{}, iteration_{}, next_iteration_{}, tail_{};
    // Tiles of other programs in the plan, with their numbers: the tiles may be freed.
    std::vector<std::pair<const Tile*, uint64_t>> others_;
    std::vector<TaskArg*> deferred_arguments_;      // by task; empty: no tasks wait
    std::vector<std::shared_ptr<Extent>> extents_;  // of temporaries, by tile
};

}  // namespace nn
