#include "engine/tiers/records.h"

#include <algorithm>

#include "engine/memory/admission.h"
#include "engine/tiers/slot_table.h"
#include "engine/tiers/store_places.h"

namespace nn {
namespace {

// Submits runs to a table of slots as engine/executor/planned.cc does.
class Submission {
public:
    // The tasks of a run: its steps, and the claims of slots.
    int64_t tasks_of(const RunPlan& run) {
        const Line& line = run.line.line;
        int64_t tasks = 0;
        for (const Placement::Step& step : run.placement.steps) {
            ++tasks;
            if (step.kind != Placement::run) {
                tasks += claims(step.slot, line.tiles[step.index].blocks);
                continue;
            }
            const uint32_t first = line.accesses.first[step.index];
            for (uint32_t i = first; i < line.accesses.first[step.index + 1]; ++i) {
                const uint32_t tile = line.accesses.list[i].tile;
                tasks += claims(run.placement.slots[i], line.tiles[tile].blocks);
            }
        }
        return tasks;
    }
    uint32_t slots() const { return table_.count(); }

private:
    int64_t claims(uint32_t slot, uint32_t blocks) {
        if (slot == no_slot) return 0;
        const auto others = table_.claim(table_.number_of(slot, blocks)).size();
        return int64_t((others + max_operands - 1) / max_operands);
    }
    SlotTable table_;
};

// The tasks of one iteration that belong to this one only.
int64_t rows_of(const Program& program, const Program::Loop& loop) {
    return std::count_if(program.tasks.begin() + std::ptrdiff_t(loop.begin),
                         program.tasks.begin() + std::ptrdiff_t(loop.end),
                         [](const Task& task) { return task.iteration == 0; });
}

EngineRecords bytes_of(int64_t handles, int64_t tasks) {
    // Measured by mallinfo2() before and after the submission of steps: 2.6 to 2.8 kB.
    constexpr int64_t bytes_of_task = 2800;
    return {handles * handle_bytes, tasks * bytes_of_task};
}

}  // namespace

EngineRecords records_of(const ProgramPlan& plan, const Program& program) {
    Submission submission;
    // A run is submitted when no more tasks are left of the one before than the program has.
    const auto before = int64_t(program.tasks.size());
    int64_t run = submission.tasks_of(plan.first), loop = 0, tail = 0;
    if (plan.iterations() > 0) {
        const Program::Loop& cut = plan.cut->loops[0];
        // The second one claims as all later ones do.
        for (int i = 0; i < 2; ++i) loop = submission.tasks_of(plan.iteration);
        loop += int64_t(plan.iteration.placement.steps.size() + cut.end - cut.begin) +
                rows_of(*plan.cut, cut);
        tail = submission.tasks_of(plan.tail);
    }
    if (plan.lines->has_deferred()) {
        run = std::max(run, submission.tasks_of(plan.next));
        submission.tasks_of(plan.last);
    }
    int64_t handles = submission.slots() + int64_t(store_places(plan).bytes.size());
    for (uint32_t tile = 0; tile < plan.lines->tiles().size(); ++tile)
        handles += !plan.lines->is_placed(tile);
    return bytes_of(handles, std::max(before + run, loop + tail));
}

EngineRecords records_of(const Program& program) {
    return bytes_of(program.info.tiles, 2 * int64_t(program.tasks.size()));
}

}  // namespace nn
