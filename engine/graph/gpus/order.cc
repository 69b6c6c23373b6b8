// A task that only adds to what several lanes share waits for these lanes one after the other, and
// nothing in its layer waits for it. So it comes after the other tasks of its layer, which thereby
// form longer groups.
#include <algorithm>
#include <string>
#include <unordered_set>

#include "engine/graph/gpus/gpus.h"
#include "engine/graph/layer.h"

namespace nn {
namespace {

class Delay {
public:
    explicit Delay(Program& program)
        : program_(program),
          accesses_(program.accesses()),
          before_(predecessors(accesses_)),
          is_held_(program.tasks.size(), 0) {}

    void run() {
        find_sums();
        find_boundaries();
        for (uint32_t t = 0; t < accesses_.tasks(); ++t) place(t);
        release();
        std::vector<Task> tasks;
        for (const uint32_t t : order_) tasks.push_back(std::move(program_.tasks[t]));
        program_.tasks = std::move(tasks);
        program_.tasks_changed();
    }

private:
    // Tasks of different lanes change the tile.
    void find_sums() {
        std::vector<int> lane(accesses_.tiles, -1);
        is_sum_.assign(accesses_.tiles, 0);
        for (uint32_t t = 0; t < accesses_.tasks(); ++t)
            for (const auto* a = accesses_.begin(t); a != accesses_.end(t); ++a) {
                if (a->mode == Mode::read) continue;
                int& first = lane[a->tile];
                if (first >= 0 && first != program_.tasks[t].lane) is_sum_[a->tile] = 1;
                first = program_.tasks[t].lane;
            }
    }

    // Positions across which no task moves: where scalars change, and where parts of a step begin.
    void find_boundaries() {
        boundaries_ = {0};
        for (const auto& step : program_.scalar_steps) boundaries_.insert(step.before_task);
        for (const auto& microbatch : program_.microbatches) boundaries_.insert(microbatch.begin);
        for (const auto& backward : program_.backwards) {
            boundaries_.insert(backward.begin);
            boundaries_.insert(backward.end);
        }
    }

    bool only_adds(uint32_t t) const {
        const Task& task = program_.tasks[t];
        if (task.gates > 0 || task.is_transfer()) return false;
        for (const auto* a = accesses_.begin(t); a != accesses_.end(t); ++a)
            if (a->mode != Mode::read && !is_sum_[a->tile]) return false;
        return true;
    }

    void place(uint32_t t) {
        const std::string block = block_of(program_.tasks[t].arg.layer);
        if (boundaries_.count(t) || block != block_) release();
        block_ = block;
        program_.tasks[t].is_sum = only_adds(t);
        if (program_.tasks[t].is_sum) {
            is_held_[t] = 1;
            held_.push_back(t);
            return;
        }
        bool needs_held = false;
        for (const Edge* e = before_.begin(t); e != before_.end(t); ++e)
            needs_held = needs_held || is_held_[e->task];
        if (needs_held) release();
        order_.push_back(t);
    }

    void release() {
        for (const uint32_t t : held_) is_held_[t] = 0;
        order_.insert(order_.end(), held_.begin(), held_.end());
        held_.clear();
    }

    Program& program_;
    const Accesses accesses_;  // of the tasks in their first order
    const Edges before_;
    std::vector<char> is_sum_, is_held_;
    std::unordered_set<size_t> boundaries_;
    std::string block_;
    std::vector<uint32_t> held_, order_;
};

}  // namespace

void delay_sums(Program& program) { Delay(program).run(); }

}  // namespace nn
