#include "engine/profile/sums.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "engine/base/error.h"
#include "engine/graph/dependencies.h"

namespace nn {
namespace {

bool has_run(const TaskRecord& r) { return r.end > 0; }

// Visits all changes in order of time and adds up what each worker does. Each ready task keeps one
// idle worker of its kind waiting for the engine. If submitted tasks are not ready, the other idle
// workers wait for the disk while it has transfers, else for dependencies. If all submitted tasks
// are done, they wait for submissions (`nothing`).
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

    void add(const TransferRecord& r) {
        changes_.push_back({std::clamp(r.queued, begin_, end_), transfer_queued, 0});
        changes_.push_back({std::clamp(r.end, begin_, end_), transfer_ended, 0});
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
            for (double* time : {&w.busy, &w.data, &w.disk, &w.dependencies, &w.nothing, &w.engine})
                *time *= 1e-6;
    }

private:
    enum Event {
        submitted,
        ready,
        popped,
        launched,
        started,
        ended,
        transfer_queued,
        transfer_ended
    };
    enum Doing { idle, busy, fetching, starting };
    struct Change {
        double time;
        Event event;
        uint16_t worker;
    };
    // The time so far, and how long an idle worker of a kind waited for each reason in it.
    struct Sums {
        double all = 0, engine = 0, disk = 0, dependencies = 0, nothing = 0;
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
            double& reason = blocked_ == 0    ? sums.nothing
                             : transfers_ > 0 ? sums.disk
                                              : sums.dependencies;
            reason += time * (1 - share);
        }
    }

    // Adds the time since the last call to the worker's times.
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
                times.disk += now.disk - s.before.disk;
                times.dependencies += now.dependencies - s.before.dependencies;
                times.nothing += now.nothing - s.before.nothing;
        }
        s.before = now;
    }

    void apply(const Change& c) {
        if (c.event == transfer_queued) ++transfers_;
        if (c.event == transfer_ended) --transfers_;
        if (c.event >= transfer_queued) return;
        State& s = states_[c.worker];
        const bool kind = workers_[c.worker].gpu;
        switch (c.event) {
            case submitted: ++blocked_; return;
            case ready: --blocked_, ++ready_[kind]; return;
            case popped: --ready_[kind], ++s.fetching; break;
            case launched: --s.fetching, ++s.starting; break;
            case started: --s.starting, ++s.running; break;
            default: --s.running; break;
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
    int64_t ready_[2] = {}, blocked_ = 0, transfers_ = 0;
    Sums sums_[2];
};

const char* name_by(const TaskRecord& r, GroupBy by) {
    return by == GroupBy::kernel ? r.name() : by == GroupBy::op ? r.op : r.layer;
}

// Adds each computed task to the sum that sum_of(record) returns (nullptr: to none).
template <class F> void add_tasks(F sum_of) {
    Profile& p = profile();
    for (int64_t i = 0; i < p.count; ++i) {
        const TaskRecord& r = p.record(i);
        KernelStat* const stat = has_run(r) && !r.skipped ? sum_of(r) : nullptr;
        if (!stat) continue;
        ++stat->calls;
        stat->seconds += (r.end - r.start) * 1e-6;
        stat->flops += double(r.flops);
        stat->bytes += double(r.bytes);
    }
}

}  // namespace

ProfileTotals profile_totals(std::vector<WorkerTimes> workers, bool copies) {
    Profile& p = profile();
    ProfileTotals out{(p.end - p.begin) * 1e-6, p.count, p.lost, std::move(workers)};
    Sweep sweep(p.begin, p.end, copies, out.workers);
    for (int64_t i = 0; i < p.count; ++i)
        if (has_run(p.record(i))) sweep.add(p.record(i));
    for (const TransferRecord& r : p.transfers) sweep.add(r);
    sweep.run();
    return out;
}

std::vector<ProfileGroup> profile_groups(GroupBy by) {
    std::unordered_map<const char*, KernelStat> sums;  // equal names have one address
    add_tasks([&](const TaskRecord& r) { return &sums[name_by(r, by)]; });
    std::vector<ProfileGroup> out;
    for (const auto& [name, stat] : sums) out.push_back({name, stat});
    std::sort(out.begin(), out.end(), [](const ProfileGroup& a, const ProfileGroup& b) {
        if (a.stat.seconds != b.stat.seconds) return a.stat.seconds > b.stat.seconds;
        return std::strcmp(a.name, b.name) < 0;
    });
    return out;
}

KernelStat kernel_stat(const Kernel* kernel) {
    KernelStat out{};
    add_tasks([&](const TaskRecord& r) { return r.kernel == kernel ? &out : nullptr; });
    return out;
}

const TaskRecord& profile_task(int64_t i) {
    if (i < 0 || i >= profile().count)
        fail("profile task %lld is outside [0, %lld)", (long long)i, (long long)profile().count);
    return profile().record(i);
}

std::vector<uint32_t> tasks_before(const Edges& dependencies, int64_t i) {
    profile_task(i);
    std::vector<uint32_t> out;
    const auto task = uint32_t(i);
    for (const Edge* e = dependencies.begin(task); e != dependencies.end(task); ++e)
        out.push_back(e->task);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

Edges profile_dependencies() {
    Profile& p = profile();
    std::unordered_map<uint64_t, uint32_t> numbers;  // from Tile::number to numbers from 0
    Accesses accesses;
    for (int64_t t = 0; t < p.count; ++t) {
        const TaskRecord& r = p.record(t);
        for (uint64_t a = r.first_access; a < r.first_access + r.accesses; ++a) {
            const auto number = numbers.insert({p.accesses[a] >> 1, uint32_t(numbers.size())});
            accesses.add(number.first->second, p.accesses[a] & 1 ? Mode::read_write : Mode::read);
        }
        accesses.end_task();
    }
    accesses.tiles = uint32_t(numbers.size());
    return predecessors(accesses);
}

}  // namespace nn
