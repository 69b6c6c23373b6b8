#include "engine/tiers/predict.h"

#include <algorithm>
#include <queue>

#include "engine/base/interrupts.h"
#include "engine/tiers/levels.h"
#include "engine/tiers/slot_table.h"
#include "engine/tiers/uses.h"

namespace nn {
namespace {

constexpr uint32_t runs = 5;
constexpr uint32_t first_counted = 2;
constexpr size_t links_of_level = 2;  // at most: one for each direction

// A task, a transfer or a claim of a slot in one of the runs.
struct Event {
    enum Kind : uint8_t { task, load, store, claim } kind;
    double seconds;
    uint32_t run;
    uint64_t due = 0;       // of a transfer: see Placement::Step
    uint32_t position = 0;  // of a task
    size_t link = 0;        // of a transfer
};

// The events of several runs, with their dependencies: those of the slots, of the places in the
// store, and of the tiles that are not placed.
class Events {
public:
    Events(const std::vector<const RunPlan*>& parts, const std::vector<double>& seconds,
           const std::vector<TierRates>& rates)
        : seconds_(seconds),
          rates_(rates),
          tiles_(uint32_t(parts[0]->line.line.tiles.size())),
          first_moment_(rates.size(), 0),
          tables_(rates.size()) {
        for (run_number_ = 0; run_number_ < runs; ++run_number_) {
            first_position_ = 0;
            for (const RunPlan* part : parts) add_part(*part);
        }
        uint32_t slots = 0;
        for (const SlotTable& table : tables_) slots = std::max(slots, table.count());
        accesses_.tiles = 2 * tiles_ + levels() * slots;
    }
    const std::vector<Event>& list() const { return list_; }
    Edges before() const { return predecessors(accesses_); }

private:
    uint32_t levels() const { return uint32_t(rates_.size()); }
    uint32_t in_store(uint32_t tile) const { return tiles_ + tile; }

    void add_part(const RunPlan& part) {
        run_ = &part;
        for (const LevelStep& step : merged_steps(part, levels())) {
            check_interrupt();
            if (step.step->kind == Placement::run)
                add_task(step.step->index);
            else
                add_transfer(step);
        }
        first_position_ += part.line.line.accesses.tasks();
        for (uint32_t level = 0; level < levels(); ++level)
            first_moment_[level] += moments_of(part.level(level).line.line);
    }

    // The number of a slot in accesses. A claim before waits for all slots that share its memory.
    uint32_t claimed(uint32_t slot, uint32_t tile, uint32_t level) {
        SlotTable& table = tables_[level];
        const auto in_accesses = [&](uint32_t number) {
            return 2 * tiles_ + levels() * number + level;
        };
        const uint32_t number = table.number_of(slot, run_->line.line.tiles[tile].blocks);
        const auto& others = table.claim(number);
        if (others.empty()) return in_accesses(number);
        accesses_.add(in_accesses(number), Mode::write);
        for (uint32_t other : others) accesses_.add(in_accesses(other), Mode::write);
        end_event({Event::claim, 0, run_number_});
        return in_accesses(number);
    }
    void end_event(const Event& event) {
        accesses_.end_task();
        list_.push_back(event);
    }

    void add_task(uint32_t position) {
        const Accesses& accesses = run_->line.line.accesses;
        std::vector<uint32_t> names;
        for (uint32_t i = accesses.first[position]; i < accesses.first[position + 1]; ++i) {
            const uint32_t slot = run_->placement.slots[i], tile = accesses.list[i].tile;
            names.push_back(slot == no_slot ? tile : claimed(slot, tile, 0));
        }
        for (uint32_t i = 0; i < names.size(); ++i)
            accesses_.add(names[i], accesses.list[accesses.first[position] + i].mode);
        end_event({Event::task, seconds_at(run_->line, position, seconds_), run_number_, 0,
                   first_position_ + position});
    }

    void add_transfer(const LevelStep& level_step) {
        const auto& [step, level, slot_below] = level_step;
        const TierRates& rates = rates_[level];
        const bool loads = step->kind == Placement::load;
        const uint32_t slot = claimed(step->slot, step->index, level),
                       below = slot_below == no_slot ? in_store(step->index)
                                                     : claimed(slot_below, step->index, level + 1);
        accesses_.add(slot, loads ? Mode::write : Mode::read);
        accesses_.add(below, loads ? Mode::read : Mode::write);
        const auto bytes = double(run_->line.line.bytes_of(step->index));
        end_event({loads ? Event::load : Event::store,
                   rates.transfer_seconds + bytes / rates.link_rate, run_number_,
                   first_moment_[level] + step->due, 0,
                   links_of_level * level + size_t(rates.two_links && !loads)});
    }

    const std::vector<double>& seconds_;
    const std::vector<TierRates>& rates_;  // by level
    const uint32_t tiles_;
    const RunPlan* run_ = nullptr;  // of the part that is being added
    uint32_t run_number_ = 0, first_position_ = 0;
    std::vector<uint64_t> first_moment_;  // of the part, by level
    std::vector<SlotTable> tables_;       // by level
    std::vector<Event> list_;
    Accesses accesses_;  // tiles: unplaced ones, places in the store, slots
};

class Simulated {
public:
    Simulated(const Events& events, const std::vector<TierRates>& rates)
        : Simulated(events, events.before(), rates) {}

    Prediction run() {
        start();
        while (!running_.empty()) {
            check_interrupt();
            const auto [end, event] = running_.top();
            running_.pop();
            now_ = end;
            finish(event);
            start();
        }
        Prediction out;
        const double counted = runs - first_counted;
        out.seconds = (ended_[runs - 1] - ended_[first_counted - 1]) / counted;
        std::vector<double> busy(free_.size(), 0);
        for (const Event& event : events_) {
            if (event.run < first_counted) continue;
            if (event.kind == Event::task)
                out.computing += event.seconds / counted / workers_;
            else if (event.kind != Event::claim)
                busy[event.link] += event.seconds / counted;
        }
        for (size_t link = 0; link < busy.size(); link += links_of_level)
            out.link_busy.push_back(*std::max_element(
                busy.begin() + ptrdiff_t(link), busy.begin() + ptrdiff_t(link + links_of_level)));
        // Runs overlap, so the time between their ends can be a little less than their work.
        out.seconds = std::max(out.seconds, out.computing);
        for (const double link : out.link_busy) out.seconds = std::max(out.seconds, link);
        out.waits = waits_;
        return out;
    }

private:
    Simulated(const Events& events, const Edges& before, const std::vector<TierRates>& rates)
        : events_(events.list()),
          workers_(rates[0].workers),
          after_(successors(before)),
          missing_(events_.size(), 0),
          left_(runs, 0),
          ended_(runs, 0),
          ready_transfers_(links_of_level * rates.size()),
          idle_since_(size_t(workers_), 0),
          free_(ready_transfers_.size(), true) {
        for (uint32_t e = 0; e < events_.size(); ++e) {
            missing_[e] = before.first[e + 1] - before.first[e];
            ++left_[events_[e].run];
        }
        for (uint32_t e = 0; e < events_.size(); ++e)
            if (missing_[e] == 0) ready(e);
    }

    using Running = std::pair<double, uint32_t>;
    using Waiting = std::pair<uint64_t, uint32_t>;  // (when it is due, event)
    using Queue = std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>;

    void ready(uint32_t event) {
        const Event& e = events_[event];
        if (e.kind == Event::claim)
            claims_.push_back(event);
        else
            (e.kind == Event::task ? ready_tasks_ : ready_transfers_[e.link]).push({e.due, event});
    }
    // Earlier events first; a run starts when the run before the previous one has ended.
    bool may_start(const Queue& queue) const {
        if (queue.empty()) return false;
        const uint32_t run = events_[queue.top().second].run;
        return run < 2 || left_[run - 2] == 0;
    }
    void start() {
        while (!claims_.empty()) {
            const uint32_t claim = claims_.back();
            claims_.pop_back();
            finish(claim);
        }
        while (!idle_since_.empty() && may_start(ready_tasks_)) begin(ready_tasks_);
        for (size_t link = 0; link < free_.size(); ++link)
            for (; free_[link] && may_start(ready_transfers_[link]); free_[link] = false)
                begin(ready_transfers_[link]);
    }
    void begin(Queue& queue) {
        const uint32_t event = queue.top().second;
        if (events_[event].kind == Event::task) note_wait(events_[event]);
        running_.push({now_ + events_[event].seconds, event});
        queue.pop();
    }
    void note_wait(const Event& task) {
        const double wait = now_ - idle_since_.back();
        idle_since_.pop_back();
        if (task.run < first_counted) return;
        if (waits_.size() <= task.position) waits_.resize(task.position + 1, 0);
        waits_[task.position] += wait / (runs - first_counted);
    }
    void finish(uint32_t event) {
        const Event& e = events_[event];
        if (e.kind == Event::load || e.kind == Event::store) free_[e.link] = true;
        if (e.kind == Event::task) idle_since_.push_back(now_);
        if (--left_[e.run] == 0) ended_[e.run] = now_;
        for (const Edge* edge = after_.begin(event); edge != after_.end(event); ++edge)
            if (--missing_[edge->task] == 0) ready(edge->task);
    }

    const std::vector<Event>& events_;
    const int workers_;
    const Edges after_;
    std::vector<uint32_t> missing_, left_;  // predecessors of an event; events of a run
    std::vector<double> ended_;
    Queue ready_tasks_;
    std::vector<Queue> ready_transfers_;  // by link
    std::vector<uint32_t> claims_;        // that are ready
    std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
    std::vector<double> idle_since_;  // of the workers that are free
    std::vector<double> waits_;
    std::vector<char> free_;  // links
    double now_ = 0;
};

}  // namespace

Prediction predict(const std::vector<const RunPlan*>& parts, const std::vector<double>& seconds,
                   const std::vector<TierRates>& rates) {
    const Events events(parts, seconds, rates);
    return Simulated(events, rates).run();
}

Prediction predict(const ProgramPlan& plan, const std::vector<double>& seconds,
                   const PlanLimits& limits) {
    constexpr uint32_t iterations = 2;  // the others take as long as a steady one
    const std::vector<TierRates> rates = limits.rates_of_levels();
    std::vector<const RunPlan*> parts;
    for (const auto& [run, times] : plan.steady_parts())
        if (times > 0) parts.push_back(run);
    Prediction out = predict(parts, seconds, rates);
    if (plan.iterations() <= iterations) return out;
    const Prediction one = predict({&plan.next_iteration}, seconds, rates);
    const uint32_t more = plan.iterations() - iterations;
    out.seconds += more * one.seconds, out.computing += more * one.computing;
    for (size_t level = 0; level < rates.size(); ++level)
        out.link_busy[level] += more * one.link_busy[level];
    return out;
}

}  // namespace nn
