// As in StarPU 1.4's `prio`, one queue is sorted by priority and then by the time at which tasks
// became ready (prio_deque.c). A tile's memory is allocated when the task that writes it starts,
// and freed when the last task of its life ends.
#include "engine/plan/simulate.h"

#include <algorithm>
#include <queue>

#include "engine/base/interrupts.h"

namespace nn {
namespace {

// The allocated bytes of each rank, and their peak.
class MemoryUse {
public:
    explicit MemoryUse(const SimulatedStep& step)
        : results(step.ranks), step_(step), left_(step.blocks.size(), 0), now_(step.ranks) {
        for (const auto& block : step.blocks)
            if (block.persists) add(block, 1);
        for (size_t i = 0; i < step.accesses.list.size(); ++i) {
            const uint32_t life = life_of(&step.accesses.list[i]);
            if (life >= uses_.size()) uses_.resize(life + 1, 0);
            ++uses_[life];
        }
        for (uint32_t rank = 0; rank < step.ranks; ++rank) results[rank].lasting = now_[rank].all;
    }
    void task_starts(uint32_t task) {
        for (const auto* a = step_.accesses.begin(task); a != step_.accesses.end(task); ++a) {
            if (step_.blocks[a->tile].persists || left_[a->tile] > 0) continue;
            left_[a->tile] = uses_[life_of(a)];
            add(step_.blocks[a->tile], 1);
        }
        for (const auto* a = step_.accesses.begin(task); a != step_.accesses.end(task); ++a)
            keep_peak(step_.blocks[a->tile].rank);
    }
    void task_ends(uint32_t task) {
        for (const auto* a = step_.accesses.begin(task); a != step_.accesses.end(task); ++a)
            if (!step_.blocks[a->tile].persists && --left_[a->tile] == 0)
                add(step_.blocks[a->tile], -1);
    }
    std::vector<SimulationResult> results;

private:
    struct Now {
        int64_t all = 0, by_kind[tile_kinds] = {};
    };
    uint32_t life_of(const Accesses::Access* access) const {
        if (step_.lives.empty()) return access->tile;
        return step_.lives[size_t(access - step_.accesses.list.data())];
    }
    void add(const SimulatedStep::Block& block, int sign) {
        now_[block.rank].all += sign * block.bytes;
        now_[block.rank].by_kind[block.kind] += sign * block.bytes;
    }
    void keep_peak(uint32_t rank) {
        SimulationResult& result = results[rank];
        if (now_[rank].all <= result.peak) return;
        result.peak = now_[rank].all;
        std::ranges::copy(now_[rank].by_kind, result.by_kind);
    }
    const SimulatedStep& step_;
    std::vector<uint32_t> uses_;  // by life
    std::vector<uint32_t> left_;  // by tile: uses of its present life that are not done
    std::vector<Now> now_;        // by rank
};

struct Ready {
    int32_t priority;
    uint32_t since, id;  // since: counts the tasks that became ready
    bool operator<(const Ready& o) const {
        return priority != o.priority ? priority < o.priority : since > o.since;
    }
};
struct Running {
    double end;
    uint32_t id;
    bool operator<(const Running& o) const { return end != o.end ? end > o.end : id > o.id; }
};

// One run of a simulation: the state between two events.
class Run {
public:
    Run(const SimulatedStep& step, const Edges& successors, std::vector<uint32_t> predecessors,
        uint32_t replays, const std::vector<double>& seconds)
        : count_(uint32_t(seconds.size())),
          all_(count_ * replays),
          step_(step),
          successors_(successors),
          seconds_(seconds),
          missing_(std::move(predecessors)),
          left_(replays, count_),
          memory_(step),
          resources_(2 * step.ranks) {
        for (uint32_t& missing : missing_) ++missing;  // a task's own submission
    }

    std::vector<SimulationResult> simulate(int workers, double submission) {
        for (uint32_t i = 0; i < 2 * step_.ranks; ++i)
            resources_[i].free = i < step_.ranks ? workers : 1;
        submission /= step_.ranks;  // each submits its own tasks
        for (uint32_t event = 0; submitted_ < all_ || !running_.empty(); ++event) {
            if (event % check_every == 0) check_interrupt();
            if (may_submit() && (running_.empty() || next_submission_ <= running_.top().end)) {
                now_ = std::max(now_, next_submission_);
                next_submission_ = now_ + submission;
                satisfy(submitted_++);
            } else {
                end_task();
            }
            if (may_submit() && next_submission_ <= now_)
                continue;  // submissions at the same time first
            start_tasks();
        }
        for (SimulationResult& result : memory_.results) {
            result.peak = std::max(result.peak, result.lasting);
            result.seconds = now_ / double(left_.size());
        }
        for (uint32_t task = 0; task < count_; ++task) {
            const uint32_t resource = resource_of(task), rank = resource % step_.ranks;
            SimulationResult& result = memory_.results[rank];
            (resource < step_.ranks ? result.busy : result.sending) += seconds_[task];
        }
        return memory_.results;
    }

private:
    bool may_submit() const {
        return submitted_ < all_ &&
               (submitted_ / count_ < 2 || left_[submitted_ / count_ - 2] == 0);
    }
    uint32_t resource_of(uint32_t task) const {
        return step_.resources.empty() ? 0 : step_.resources[task];
    }
    void satisfy(uint32_t id) {
        if (--missing_[id] > 0) return;
        const uint32_t resource = resource_of(id % count_);
        resources_[resource].ready.push({step_.priorities[id % count_], since_++, id});
        touched_.push_back(resource);
    }
    // On the resources that may have both something to run and somebody to run it.
    void start_tasks() {
        for (const uint32_t number : touched_) {
            Resource& resource = resources_[number];
            while (!resource.ready.empty() && resource.free > 0) {
                const uint32_t id = resource.ready.top().id;
                resource.ready.pop();
                --resource.free;
                memory_.task_starts(id % count_);
                running_.push({now_ + seconds_[id % count_], id});
            }
        }
        touched_.clear();
    }
    void end_task() {
        const uint32_t id = running_.top().id, resource = resource_of(id % count_);
        now_ = running_.top().end;
        running_.pop();
        for (const Edge* e = successors_.begin(id); e != successors_.end(id); ++e) satisfy(e->task);
        // Idle workers start tasks before this worker frees the task's memory.
        start_tasks();
        memory_.task_ends(id % count_);
        ++resources_[resource].free;
        touched_.push_back(resource);
        if (--left_[id / count_] == 0) next_submission_ = std::max(next_submission_, now_);
    }

    static constexpr uint32_t check_every = 4096;  // events, about a millisecond
    const uint32_t count_, all_;
    const SimulatedStep& step_;
    const Edges& successors_;
    const std::vector<double>& seconds_;
    std::vector<uint32_t> missing_;  // predecessors and submission that a task waits for
    std::vector<uint32_t> left_;     // tasks of each replay
    MemoryUse memory_;
    struct Resource {
        int free = 0;  // workers
        std::priority_queue<Ready> ready;
    };
    std::vector<Resource> resources_;
    std::vector<uint32_t> touched_;
    std::priority_queue<Running> running_;
    uint32_t submitted_ = 0, since_ = 0;
    double now_ = 0, next_submission_ = 0;
};

}  // namespace

Simulation::Simulation(SimulatedStep step, int replays)
    : step_(std::move(step)), replays_(uint32_t(replays)) {
    const Edges before = predecessors(step_.accesses, replays_);
    successors_ = successors(before);
    for (uint32_t id = 0; id < before.tasks(); ++id)
        predecessors_.push_back(before.first[id + 1] - before.first[id]);
}

std::vector<SimulationResult> Simulation::run(int workers, double submission,
                                              const std::vector<double>& seconds) const {
    return Run(step_, successors_, predecessors_, replays_, seconds).simulate(workers, submission);
}

}  // namespace nn
