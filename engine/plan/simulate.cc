// As in StarPU 1.4's `prio`, one queue is sorted by priority and then by the time at which tasks
// became ready (prio_deque.c). A tile's memory is allocated when the task that writes it starts,
// and freed when the last task of its life ends.
#include "engine/plan/simulate.h"

#include <algorithm>
#include <queue>

#include "engine/base/interrupts.h"

namespace nn {
namespace {

// The allocated bytes, and their peak.
class MemoryUse {
public:
    explicit MemoryUse(const SimulatedStep& step) : step_(step), left_(step.blocks.size(), 0) {
        for (const auto& block : step.blocks)
            if (block.persists) add(block, 1);
        for (size_t i = 0; i < step.accesses.list.size(); ++i) {
            const uint32_t life = life_of(&step.accesses.list[i]);
            if (life >= uses_.size()) uses_.resize(life + 1, 0);
            ++uses_[life];
        }
        result.lasting = now_;
    }
    void task_starts(uint32_t task) {
        for (const auto* a = step_.accesses.begin(task); a != step_.accesses.end(task); ++a) {
            if (step_.blocks[a->tile].persists || left_[a->tile] > 0) continue;
            left_[a->tile] = uses_[life_of(a)];
            add(step_.blocks[a->tile], 1);
        }
        if (now_ <= result.peak) return;
        result.peak = now_;
        std::copy(by_kind_, by_kind_ + tile_kinds, result.by_kind);
    }
    void task_ends(uint32_t task) {
        for (const auto* a = step_.accesses.begin(task); a != step_.accesses.end(task); ++a)
            if (!step_.blocks[a->tile].persists && --left_[a->tile] == 0)
                add(step_.blocks[a->tile], -1);
    }
    SimulationResult result;

private:
    uint32_t life_of(const Accesses::Access* access) const {
        if (step_.lives.empty()) return access->tile;
        return step_.lives[size_t(access - step_.accesses.list.data())];
    }
    void add(const SimulatedStep::Block& block, int sign) {
        now_ += sign * block.bytes;
        by_kind_[block.kind] += sign * block.bytes;
    }
    const SimulatedStep& step_;
    std::vector<uint32_t> uses_;  // by life
    std::vector<uint32_t> left_;  // by tile: uses of its present life that are not done
    int64_t now_ = 0, by_kind_[tile_kinds] = {};
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
          memory_(step) {
        for (uint32_t& missing : missing_) ++missing;  // a task's own submission
    }

    SimulationResult simulate(int workers, double submission) {
        for (uint32_t event = 0; submitted_ < all_ || !running_.empty(); ++event) {
            if (event % check_every == 0) check_interrupt();
            if (may_submit() && (running_.empty() || next_submission_ <= running_.top().end)) {
                now_ = std::max(now_, next_submission_);
                next_submission_ = now_ + submission;
                satisfy(submitted_++);
            } else {
                end_task(workers);
            }
            if (may_submit() && next_submission_ <= now_)
                continue;  // submissions at the same time first
            start_tasks(workers);
        }
        SimulationResult out = memory_.result;
        out.peak = std::max(out.peak, out.lasting);
        out.seconds = now_ / double(left_.size());
        for (double seconds : seconds_) out.busy += seconds;
        return out;
    }

private:
    bool may_submit() const {
        return submitted_ < all_ &&
               (submitted_ / count_ < 2 || left_[submitted_ / count_ - 2] == 0);
    }
    void satisfy(uint32_t id) {
        if (--missing_[id] == 0) ready_.push({step_.priorities[id % count_], since_++, id});
    }
    void start_tasks(int busy_workers) {
        while (!ready_.empty() && int(running_.size()) < busy_workers) {
            const uint32_t id = ready_.top().id;
            ready_.pop();
            memory_.task_starts(id % count_);
            running_.push({now_ + seconds_[id % count_], id});
        }
    }
    void end_task(int workers) {
        const uint32_t id = running_.top().id;
        now_ = running_.top().end;
        running_.pop();
        for (const Edge* e = successors_.begin(id); e != successors_.end(id); ++e) satisfy(e->task);
        // Idle workers start tasks before this worker frees the task's memory.
        start_tasks(workers - 1);
        memory_.task_ends(id % count_);
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
    std::priority_queue<Ready> ready_;
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

SimulationResult Simulation::run(int workers, double submission,
                                 const std::vector<double>& seconds) const {
    return Run(step_, successors_, predecessors_, replays_, seconds).simulate(workers, submission);
}

}  // namespace nn
