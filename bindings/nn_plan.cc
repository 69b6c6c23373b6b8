// The C API of plans: what a step would cost.
#include "bindings/nn_plan.h"

#include <algorithm>

#include "bindings/handles.h"
#include "engine/graph/passes/loops.h"
#include "engine/graph/recording.h"
#include "engine/machine/ranks.h"
#include "engine/plan/plan.h"
#include "engine/plan/rank_link.h"
#include "engine/schedule/choose_activations.h"
#include "engine/schedule/pipeline.h"

using namespace nn;
using namespace nn::capi;

int nn_record_step(const nn_ref* lasting, int32_t count) {
    return guard([&] {
        std::vector<Tensor> tensors = tensors_of(lasting, count, "plan");
        for (const Tensor& tensor : tensors)
            if (!tensor) fail("plan: a tensor is missing");
        begin_planned_step(std::move(tensors));
    });
}

int nn_tensor_kind(const nn_ref* tensor, int32_t kind) {
    return guard([&] {
        if (kind < 0 || kind >= tile_kinds)
            fail("tensor kind %d is outside [0, %d)", kind, tile_kinds);
        const Tensor& t = tensor_of(given(tensor, "tensor"));
        for (int64_t i = 0; i < t.tiles(); ++i) t.tile(i)->kind = TileKind(kind);
    });
}

static nn_rank_plan_t plan_of_rank(const Program& part, const SimulationResult& result) {
    nn_rank_plan_t out{result.peak, 0, 0, 0, 0, result.busy, result.sending};
    const std::vector<uint32_t> runs = runs_of_tasks(part);
    for (size_t t = 0; t < part.tasks.size(); ++t) {
        const Task& task = part.tasks[t];
        out.tasks += runs[t];
        out.flops += runs[t] * double(task.arg.flops);
        if (task.is_transfer())
            (task.transfer == Task::Transfer::send ? out.sent : out.received) +=
                int64_t(task.tiles[0]->bytes);
    }
    return out;
}

int nn_program_plan(const nn_ref* program, int32_t measured, int32_t steps, nn_program_plan_t* out,
                    nn_rank_plan_t* of_ranks, int32_t* n_ranks) {
    return guard([&] {
        const Program& p = program_of(program).program();
        if (measured < 0 || measured > 2) fail("plan: measured is %d, not 0, 1 or 2", measured);
        if (steps < 1 || steps > 9) fail("plan: %d steps, not 1 to 9", steps);
        // With room for one, that of this rank.
        const auto others = given(n_ranks, "n_ranks") == 1 ? std::vector<std::unique_ptr<Program>>()
                                                           : parts_of_others(p);
        Parts parts;
        for (const auto& other : others) parts.push_back(other.get());
        const size_t me = parts.empty() ? 0 : size_t(ranks().rank);
        parts.insert(parts.begin() + ptrdiff_t(me), &p);
        if (int(parts.size()) > *n_ranks)
            fail("room for the plans of %d ranks, not %zu", *n_ranks, parts.size());
        const std::vector<SimulationResult> results = plan(parts, Times(measured), steps);
        *n_ranks = int32_t(parts.size());
        for (size_t rank = 0; rank < parts.size(); ++rank)
            (&given(of_ranks, "of_ranks"))[rank] = plan_of_rank(*parts[rank], results[rank]);
        const SimulationResult& r = results[me];
        nn_program_plan_t& to = given(out, "out");
        to = {};
        to.recorded = int64_t((p.whole ? *p.whole : p).tasks.size());
        for (int32_t rank = 0; rank < *n_ranks; ++rank) to.flops += of_ranks[rank].flops;
        to.tasks = of_ranks[me].tasks;
        to.seconds = r.seconds, to.busy = r.busy, to.peak = r.peak, to.lasting = r.lasting;
        std::copy(r.by_kind, r.by_kind + tile_kinds, to.kinds);
        to.recomputed = p.recomputed_bytes, to.recomputing = share_recomputed(p, Times(measured));
        to.workers = planned_workers(), to.on_gpus = planned_gpus() > 0;
        to.assumed_rates = gpu_rates_are_assumed();
        to.assumed_link = rank_link_is_assumed(), to.link_rate = rank_link_rate();
    });
}

int nn_plan_together(int32_t together) { return guard(plan_together, together != 0); }
int nn_measure_rank_link(void) { return guard(measure_rank_link); }
