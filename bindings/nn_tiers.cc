// The C API of memory tiers: settings, use, and plans.
#include <algorithm>

#include "bindings/handles.h"
#include "engine/memory/disk_rate.h"
#include "engine/memory/stalls.h"
#include "engine/plan/choose_activations.h"
#include "engine/plan/plan.h"
#include "engine/runtime/homes.h"
#include "engine/runtime/session.h"
#include "engine/runtime/workers.h"
#include "engine/tiers/plan.h"

using namespace nn;
using namespace nn::capi;

namespace {

void add_moved(const ProgramPlan& plan, nn_tier_plan_t& out) {
    const RunPlan& run = plan.steady();
    for (const Placement::Step& step : run.placement.steps) {
        if (step.kind == Placement::run) continue;
        const auto kind = plan.lines->tiles()[step.index]->kind;
        const int64_t bytes = run.line.line.bytes_of(step.index);
        (step.kind == Placement::load ? out.loaded : out.stored)[kind] += bytes;
    }
}

// Bytes of the tiles that have a place on disk: persistent ones, and temporaries that leave their
// slots.
int64_t disk_bytes(const ProgramPlan& plan) {
    const RunPlan& run = plan.steady();
    std::vector<char> on_disk(plan.lines->tiles().size(), 0);
    for (uint32_t tile = 0; tile < on_disk.size(); ++tile)
        on_disk[tile] = plan.lines->is_placed(tile) && run.line.line.tiles[tile].before &&
                        run.placement.first[tile] == no_slot;
    for (const Placement::Step& step : run.placement.steps)
        if (step.kind == Placement::store) on_disk[step.index] = 1;
    int64_t out = 0;
    for (uint32_t tile = 0; tile < on_disk.size(); ++tile)
        if (on_disk[tile]) out += run.line.line.bytes_of(tile);
    return out;
}

}  // namespace

int nn_memory_tiers(int64_t ram, const char* folder, double bytes_per_second, int64_t gpu) {
    return guard([&] {
        if (gpu > 0) start();
        set_tiers({ram, folder ? folder : "", bytes_per_second, gpu});
    });
}

int nn_activations(int32_t choice) {
    return guard([&] {
        if (choice < 0 || choice > 2) fail("activations: %d, not 0, 1 or 2", choice);
        set_activations(Activation(choice));
    });
}

int nn_tiers(nn_tiers_info_t* out) {
    return guard([&] {
        const TierUse use = tier_use();
        given(out, "out") = {use.slots,       use.store,
                             use.totals.read, use.totals.written,
                             use.totals.busy, stalled_seconds(running_cpu_workers())};
    });
}

int nn_measure_disk(const char* folder, double written, int64_t piece, int32_t threads,
                    double* bytes_per_second) {
    return guard([&] {
        DiskLoad load;
        load.written = written;
        if (piece != 0) load.piece = piece;
        if (threads != 0) load.threads = threads;
        double& out = given(bytes_per_second, "bytes_per_second");
        out = measure_disk(&given(folder, "folder"), load);
    });
}

int nn_program_tiers(const nn_ref* program, int32_t measured, nn_tier_plan_t* out) {
    return guard([&] {
        const Program& p = program_of(program).program();
        const auto seconds = p.seconds.empty() ? placement_seconds(p) : p.seconds;
        const PlanLimits limits = placement_limits(p);
        const ProgramPlan plan = plan_program(p, seconds, limits);
        const Prediction time = predict(plan, task_seconds(p, Times(measured)), limits.rates);
        nn_tier_plan_t& to = given(out, "out");
        to = {};
        to.slots = plan.blocks * slot_block;
        to.kept = plan.lines->kept();
        to.reserved = limits.reserved;
        to.disk = disk_bytes(plan);
        add_moved(plan, to);
        const TransferBytes lru = lru_transfers(plan.steady().line.line, plan.blocks);
        to.least_moved = plan.least_moved;
        to.lru_moved = lru.loaded + lru.stored;
        to.seconds = time.seconds, to.computing = time.computing, to.disk_busy = time.disk_busy;
    });
}
