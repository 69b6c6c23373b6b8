// What the records of a profile tell: sums by kernel, op and layer, which tasks had to wait for
// which, and what the workers did at every moment.
#include <starpu.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "engine/error.h"
#include "engine/profile_state.h"
#include "engine/runtime.h"

namespace nn {
namespace {

bool has_run(const TaskRecord& r) { return r.end > 0; }

// Goes through the moments at which something changed and adds up what each worker does. What an
// idle one waits for is told by the tasks that no worker has taken: those that are ready are waited
// for by as many idle workers of the kind that will run them (that is the engine's time), and the
// other workers by what is submitted and not ready, if there is anything.
class Sweep {
public:
    Sweep(double begin, double end, bool copies, std::vector<WorkerTimes>& workers)
        : begin_(begin), end_(end), copies_(copies), workers_(workers), states_(workers.size()) {
        for (const WorkerTimes& w : workers) ++idle_[w.gpu];
    }

    void add(const TaskRecord& r) {
        const auto w = uint16_t(r.worker);
        const double times[] = {r.submitted, r.ready, r.popped, r.launched, r.start, r.end};
        for (int i = 0; i < 6; ++i)
            changes_.push_back({std::clamp(times[i], begin_, end_), Event(i), w});
        ++workers_[w].tasks;
    }

    void run() {
        std::stable_sort(changes_.begin(), changes_.end(),
                         [](const Change& a, const Change& b) { return a.time < b.time; });
        double now = begin_;
        for (const Change& c : changes_) {
            pass(c.time - now);
            now = c.time;
            apply(c);
        }
        pass(end_ - now);
        for (size_t w = 0; w < workers_.size(); ++w) settle(w);
        for (WorkerTimes& w : workers_)
            for (double* time : {&w.busy, &w.data, &w.dependencies, &w.nothing, &w.engine})
                *time *= 1e-6;
    }

private:
    enum Event { submitted, ready, popped, launched, started, ended };
    enum Doing { idle, busy, fetching, starting };
    struct Change {
        double time;
        Event event;
        uint16_t worker;
    };
    // Time that has passed, and how much of it an idle worker of a kind waited for what.
    struct Sums {
        double all = 0, engine = 0, dependencies = 0, nothing = 0;
    };
    struct State {
        int running = 0, fetching = 0, starting = 0;  // tasks
        Doing doing = idle;
        Sums before;  // of its kind, when it was last settled
    };

    void pass(double time) {
        for (int kind : {0, 1}) {
            Sums& sums = sums_[kind];
            sums.all += time;
            if (idle_[kind] == 0) continue;
            const double share = std::min(1.0, double(ready_[kind]) / idle_[kind]);
            sums.engine += time * share;
            (blocked_ > 0 ? sums.dependencies : sums.nothing) += time * (1 - share);
        }
    }

    // Gives the worker the time that has passed since the last call.
    void settle(size_t w) {
        WorkerTimes& times = workers_[w];
        State& s = states_[w];
        const Sums& now = sums_[times.gpu];
        const double passed = now.all - s.before.all;
        switch (s.doing) {
            case busy: times.busy += passed; break;
            case fetching: (copies_ ? times.data : times.engine) += passed; break;
            case starting: times.engine += passed; break;
            case idle:
                times.engine += now.engine - s.before.engine;
                times.dependencies += now.dependencies - s.before.dependencies;
                times.nothing += now.nothing - s.before.nothing;
        }
        s.before = now;
    }

    void apply(const Change& c) {
        State& s = states_[c.worker];
        const bool kind = workers_[c.worker].gpu;
        switch (c.event) {
            case submitted: ++blocked_; return;
            case ready: --blocked_, ++ready_[kind]; return;
            case popped: --ready_[kind], ++s.fetching; break;
            case launched: --s.fetching, ++s.starting; break;
            case started: --s.starting, ++s.running; break;
            case ended: --s.running; break;
        }
        const Doing doing = s.running ? busy : s.fetching ? fetching : s.starting ? starting : idle;
        if (doing == s.doing) return;
        settle(c.worker);
        idle_[kind] += (doing == idle) - (s.doing == idle);
        s.doing = doing;
    }

    const double begin_, end_;
    const bool copies_;
    std::vector<WorkerTimes>& workers_;
    std::vector<State> states_;
    std::vector<Change> changes_;
    int idle_[2] = {};  // workers, of CPUs and of GPUs
    int64_t ready_[2] = {}, blocked_ = 0;
    Sums sums_[2];
};

std::vector<WorkerTimes> all_workers() {
    std::vector<WorkerTimes> out;
    if (!running()) return out;
    for (int w = 0; w < int(starpu_worker_get_count()); ++w) {
        const bool gpu = starpu_worker_get_type(w) == STARPU_CUDA_WORKER;
        out.push_back({gpu ? gpu_name(w) : "", gpu, 0, 0, 0, 0, 0, 0});
    }
    int cpus = 0;  // StarPU counts the GPUs' workers first
    for (WorkerTimes& w : out)
        if (!w.gpu) w.name = format("CPU %d", cpus++);
    return out;
}

// Of every tile: the task that wrote it last, and those that read it since.
struct Access {
    int64_t writer = -1;
    std::vector<uint32_t> readers;
};

void find_before(Profile& p) {
    p.before.assign(size_t(p.count), {});
    std::unordered_map<uint64_t, Access> tiles;
    for (uint32_t t = 0; t < uint32_t(p.count); ++t) {
        const TaskRecord& r = p.record(t);
        std::vector<uint32_t>& before = p.before[t];
        for (int i = 0; i < r.accesses; ++i) {
            const uint64_t access = p.accesses[size_t(r.first_access) + size_t(i)];
            Access& tile = tiles[access >> 1];
            if (tile.writer >= 0) before.push_back(uint32_t(tile.writer));
            if (access & 1) {
                before.insert(before.end(), tile.readers.begin(), tile.readers.end());
                tile.readers.clear();
                tile.writer = t;
            } else {
                tile.readers.push_back(t);
            }
        }
        std::sort(before.begin(), before.end());
        before.erase(std::unique(before.begin(), before.end()), before.end());
    }
}

const char* name_by(const TaskRecord& r, GroupBy by) {
    return by == GroupBy::kernel ? r.name() : by == GroupBy::op ? r.op : r.layer;
}

void add(KernelStat& stat, const TaskRecord& r) {
    ++stat.calls;
    stat.seconds += (r.end - r.start) * 1e-6;
    stat.flops += double(r.flops);
    stat.bytes += double(r.bytes);
}

}  // namespace

ProfileTotals profile_totals() {
    Profile& p = profile();
    ProfileTotals out{(p.end - p.begin) * 1e-6, p.count, p.lost, all_workers()};
    Sweep sweep(p.begin, p.end, places() > 1, out.workers);
    for (int64_t i = 0; i < p.count; ++i)
        if (has_run(p.record(i))) sweep.add(p.record(i));
    sweep.run();
    return out;
}

std::vector<ProfileGroup> profile_groups(GroupBy by) {
    Profile& p = profile();
    std::unordered_map<const char*, KernelStat> sums;  // names are never copied
    for (int64_t i = 0; i < p.count; ++i)
        if (has_run(p.record(i)) && !p.record(i).skipped)
            add(sums[name_by(p.record(i), by)], p.record(i));
    std::vector<ProfileGroup> out;
    for (const auto& [name, stat] : sums) out.push_back({name, stat});
    std::sort(out.begin(), out.end(), [](const ProfileGroup& a, const ProfileGroup& b) {
        if (a.stat.seconds != b.stat.seconds) return a.stat.seconds > b.stat.seconds;
        return std::strcmp(a.name, b.name) < 0;
    });
    return out;
}

KernelStat kernel_stat(const Kernel* kernel) {
    Profile& p = profile();
    KernelStat out{};
    for (int64_t i = 0; i < p.count; ++i) {
        const TaskRecord& r = p.record(i);
        if (r.kernel == kernel && has_run(r) && !r.skipped) add(out, r);
    }
    return out;
}

double profile_begin() { return profile().begin; }
int64_t profile_tasks() { return profile().count; }

const TaskRecord& profile_task(int64_t i) {
    if (i < 0 || i >= profile().count) fail("profile: there is no task %lld", (long long)i);
    return profile().record(i);
}

const std::vector<SpanRecord>& profile_spans() { return profile().spans; }

const std::vector<uint32_t>& tasks_before(int64_t i) {
    profile_task(i);
    Profile& p = profile();
    if (p.stale) find_before(p);
    p.stale = false;
    return p.before[size_t(i)];
}

}  // namespace nn
