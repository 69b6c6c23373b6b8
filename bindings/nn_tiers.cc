// The C API of memory tiers: settings, use, and plans.
#include <algorithm>
#include <sstream>

#include "bindings/handles.h"
#include "bindings/nn_plan.h"
#include "engine/base/heap.h"
#include "engine/base/interrupts.h"
#include "engine/io/output_file.h"
#include "engine/machine/host.h"
#include "engine/machine/memory_limit.h"
#include "engine/memory/arena.h"
#include "engine/memory/disk_rate.h"
#include "engine/memory/stalls.h"
#include "engine/plan/plan.h"
#include "engine/residency/homes.h"
#include "engine/runtime/session.h"
#include "engine/schedule/choose_activations.h"
#include "engine/tiers/found_plan.h"
#include "engine/tiers/plan.h"
#include "engine/tiers/records.h"
#include "engine/tiers/search.h"
#include "engine/tiers/search_time.h"
#include "engine/tiers/store_places.h"
#include "engine/workers/workers.h"

using namespace nn;
using namespace nn::capi;

namespace {

// The bytes that runs move, by kind.
void add_moved(const ProgramPlan& plan, const RunPlan& run, uint32_t times, int64_t* loaded,
               int64_t* stored) {
    for (const Placement::Step& step : run.placement.steps) {
        if (step.kind == Placement::run) continue;
        const auto kind = plan.lines->tiles()[step.index]->kind;
        const int64_t bytes = times * run.line.line.bytes_of(step.index);
        (step.kind == Placement::load ? loaded : stored)[kind] += bytes;
    }
}

int64_t lru_moved(const RunPlan& run) {
    const TransferBytes lru = lru_transfers(run.line.line, run.placement.blocks);
    return lru.loaded + lru.stored;
}

// The RAM for everything but tiles, while the plan exists.
int64_t rest_with(const EngineRecords& records) {
    constexpr int files = 2;  // of a checkpoint, written together
    return_free_memory();
    return files * least_file_memory() + rest_of_process(host().count(Device::cpu), arena_taken(),
                                                         tiers().bytes(NodeKind::ram), records);
}

nn_tier_plan_t describe_plan(const Program& p, Times times, nn_tier_level_t* levels) {
    const auto seconds = p.seconds.empty() ? placement_seconds(p) : p.seconds;
    const PlanLimits limits = tier_limits(p);
    const ProgramPlan plan = plan_program(p, seconds, limits);
    const Prediction time = predict(plan, task_seconds(plan.cut ? *plan.cut : p, times), limits);
    const std::vector<uint32_t> blocks = plan.blocks_of_levels();
    for (size_t i = 0; i < blocks.size(); ++i) {  // others remain empty
        nn_tier_level_t& to = levels[i];
        to.slots = blocks[i] * slot_block, to.reserved = limits.level(i).reserved;
        to.least_moved = i == 0 ? plan.least_moved : plan.below[i - 1].least_moved;
        to.busy = time.link_busy[i];
        for (const auto& [run, count] : plan.steady_parts()) {
            add_moved(plan, run->level(i), count, to.loaded, to.stored);
            to.lru_moved += count * lru_moved(run->level(i));
        }
    }
    const int64_t stored = blocks.size() == limits.levels() ? store_places(plan).all_bytes() : 0;
    return {plan.lines->kept(), stored, rest_with(records_of(plan, p)), time.seconds,
            time.computing};
}

std::vector<std::string> lines_of(const char* text) {
    std::istringstream in(text ? text : "");
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
}

// All tiles stay in the upper tier.
nn_tier_plan_t describe_resident(const Program& p, Times times) {
    const double seconds = plan({&p}, times).front().seconds;
    return {p.info.persistent_bytes + p.info.peak_bytes, 0, rest_with(records_of(p)), seconds,
            seconds};
}

}  // namespace

int nn_memory_tiers(int64_t ram, const char* folders, double rate, int64_t gpu,
                    int32_t disk_in_ram) {
    return guard([&] {
        if (gpu > 0) start();
        TierSettings tiers{{}, lines_of(folders), rate, disk_in_ram != 0};
        if (gpu > 0) tiers.levels.push_back({NodeKind::gpu, gpu});
        if (ram > 0) tiers.levels.push_back({NodeKind::ram, ram});
        set_tiers(tiers);
    });
}

int nn_activations(int32_t choice) {
    return guard([&] {
        if (choice < 0 || choice > 2) fail("activations: %d, not 0, 1 or 2", choice);
        set_activations(Activation(choice));
    });
}

int nn_limit_search(double seconds) {
    return guard([&] {
        if (!(seconds >= 0)) fail("limit_search: %g seconds; 0 or more are possible", seconds);
        limit_search(seconds);
    });
}

int nn_tiers(nn_tiers_info_t* out) {
    return guard([&] {
        const TierUse use = tier_use();
        const auto totals = [](const StoreUse& store, int64_t slots) {
            return nn_store_info_t{store.bytes + slots, store.totals.read, store.totals.written,
                                   store.totals.busy};
        };
        const auto bytes = [&](size_t level) {
            return level < use.slots.size() ? use.slots[level] : 0;
        };
        given(out, "out") = {bytes(0),
                             disk_room(),
                             totals(use.disk, 0),
                             totals(use.ram, bytes(1)),
                             stalled_seconds(running_cpu_workers()),
                             int64_t(limited_plans()),
                             placement_searches() == 0 ? int64_t(plans_from_folder()) : 0};
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

int nn_program_tiers(const nn_ref* program, int32_t measured, nn_tier_plan_t* out,
                     nn_tier_level_t* levels, int32_t* n_levels) {
    return guard([&] {
        const Planning planning;
        const Replay& replay = program_of(program);
        const Program& p = replay.program();
        const auto count = int32_t(tiers().levels.size());
        if (count > given(n_levels, "n_levels"))
            fail("room for %d memory tiers, not %d", *n_levels, count);
        *n_levels = count;
        std::fill_n(&given(levels, "levels"), count, nn_tier_level_t{});
        given(out, "out") = replay.needs_plan() ? describe_plan(p, Times(measured), levels)
                                                : describe_resident(p, Times(measured));
    });
}
