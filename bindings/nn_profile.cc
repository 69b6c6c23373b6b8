// The C API of profiles: recording tasks, and reading the records.
#include <algorithm>
#include <optional>

#include "bindings/handles.h"
#include "engine/graph/context.h"
#include "engine/profile/links.h"
#include "engine/runtime/session.h"
#include "engine/runtime/submit.h"

using namespace nn;
using namespace nn::capi;

namespace {

// Set by nn_profile_stop().
ProfileTotals totals;
std::vector<ProfileGroup> groups[3];
std::optional<Edges> dependencies;  // computed at the first use

double since_begin(double time) { return time > 0 ? (time - profile().begin) * 1e-6 : 0; }

}  // namespace

extern "C" {

int nn_profile(int32_t enabled) {
    return guard([&] {
        wait_done();
        totals = {};
        for (auto& group : groups) group.clear();
        dependencies.reset();
        enabled ? start_profile() : enable_profile(false);
        Stats cleared;
        cleared.earlier_tasks = stats().earlier_tasks + stats().tasks;
        stats() = cleared;
    });
}

int nn_profile_stop(nn_profile_info_t* out) {
    return guard([&] {
        given(out, "out");
        if (!profiling()) fail("profile: none is under way; nn_profile(1) starts one");
        wait_all();
        stop_profile();
        dependencies.reset();  // those that were asked for meanwhile lack later tasks
        totals = session_totals();
        for (int by = 0; by < 3; ++by) groups[by] = profile_groups(GroupBy(by));
        *out = {totals.seconds,
                totals.tasks,
                totals.lost,
                int32_t(totals.workers.size()),
                {int32_t(groups[0].size()), int32_t(groups[1].size()), int32_t(groups[2].size())},
                int64_t(profile().spans.size()),
                int64_t(profile().transfers.size())};
    });
}

int nn_profile_worker(int32_t worker, nn_profile_worker_t* out) {
    return guard([&] {
        const WorkerTimes& w = element(totals.workers, worker, "profile worker");
        given(out, "out") = {w.name.c_str(), w.gpu,          w.tasks,   w.busy,  w.data,
                             w.disk,         w.dependencies, w.nothing, w.engine};
    });
}

int nn_profile_group(int32_t by, int32_t i, nn_profile_group_t* out) {
    return guard([&] {
        if (by < 0 || by > 2) fail("profile: groups are by 0 kernel, 1 op or 2 layer, not %d", by);
        const ProfileGroup& g = element(groups[by], i, "profile group");
        given(out, "out") = {g.name, g.stat.calls, g.stat.seconds, g.stat.flops, g.stat.bytes};
    });
}

int nn_profile_task(int64_t i, nn_profile_task_t* out) {
    return guard([&] {
        wait_done();
        const TaskRecord& r = profile_task(i);
        given(out, "out") = {};
        out->kernel = r.name(), out->op = r.op, out->layer = r.layer;
        out->library = r.library;
        out->submitted = since_begin(r.submitted), out->ready = since_begin(r.ready);
        out->popped = since_begin(r.popped), out->launched = since_begin(r.launched);
        out->start = since_begin(r.start), out->end = since_begin(r.end);
        out->flops = double(r.flops), out->bytes = double(r.bytes);
        out->worker = r.end > 0 ? r.worker : -1;
        out->dtype = int32_t(r.dtype), out->run = int32_t(r.run), out->index = int32_t(r.index);
        out->tile = r.tile, out->rank = r.rank;
        std::copy_n(r.extent, r.rank, out->shape);
    });
}

int nn_profile_before(int64_t i, int64_t* tasks, int32_t* count) {
    return guard([&] {
        profile_task(i);
        if (!dependencies || profiling()) dependencies = profile_dependencies();
        const std::vector<uint32_t> before = tasks_before(*dependencies, i);
        if (given(count, "count") > 0) given(tasks, "tasks");
        std::copy_n(before.begin(), std::clamp<int64_t>(*count, 0, int64_t(before.size())), tasks);
        *count = int32_t(before.size());
    });
}

int nn_profile_span(int64_t i, nn_profile_span_t* out) {
    return guard([&] {
        const SpanRecord& s = element(profile().spans, i, "profile span");
        given(out, "out") = {s.what, s.op, s.tasks, since_begin(s.start), since_begin(s.end)};
    });
}

int nn_profile_transfer(int64_t i, nn_profile_transfer_t* out) {
    return guard([&] {
        const TransferRecord& r = element(profile().transfers, i, "profile transfer");
        given(out, "out") = {r.is_disk,
                             r.writes,
                             r.kind,
                             r.bytes,
                             since_begin(r.queued),
                             since_begin(r.start),
                             since_begin(r.end)};
    });
}

int nn_profile_link(int32_t is_disk, int32_t writes, nn_profile_link_t* out) {
    return guard([&] {
        if (writes < 0 || writes > 1) fail("profile: a link is 0 read or 1 write, not %d", writes);
        const LinkTimes l = link_times(is_disk != 0, writes == 1);
        given(out, "out") = {l.transfers, l.bytes, l.busy, l.waited};
    });
}

int nn_kernel_stat(int32_t kernel, nn_kernel_stat_t* out) {
    return guard([&] {
        wait_done();
        const KernelStat s = kernel_stat(element(all_kernels(), kernel, "kernel"));
        given(out, "out") = {s.calls, s.seconds, s.flops, s.bytes};
    });
}

int nn_layer(const char* name, int32_t* id) {
    return guard([&] { given(id, "id") = layer_id(&given(name, "name")); });
}

int nn_layer_set(int32_t id, int32_t* before) {
    return guard([&] {
        const int32_t was = set_layer(id);
        if (before) *before = was;
    });
}

}  // extern "C"
