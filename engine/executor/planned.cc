#include "engine/executor/planned.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/graph/cost.h"
#include "engine/memory/admission.h"
#include "engine/runtime/rank_transfers.h"
#include "engine/runtime/submit.h"
#include "engine/schedule/needs_plan.h"
#include "engine/schedule/pipeline.h"
#include "engine/tiers/store_places.h"
#include "engine/workers/waits.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

Tile& mutable_tile(const Tile* tile) { return const_cast<Tile&>(*tile); }

// Earlier tasks come first; eager tasks, of priority 0, come before all of them.
int32_t next_priority() {
    static int32_t last = 0;
    return last = last > INT32_MIN / 2 ? last - 1 : -1;
}

TaskArg* argument_of_iteration(const Task& task, const TaskArg& first, uint64_t randoms) {
    TaskArg* const out = copy_of(first);
    shift_random_keys(task, out, randoms);
    return out;
}

void need_gpu(const Task& task) {
    if (task.is_transfer()) return;
    const Where where = task.where == Where::anywhere ? settings().where : task.where;
    const bool on_cpu = where == Where::cpu;
    if (!on_cpu && task.arg.kernel->on(Device::cuda)) return;
    fail(
        "%s: a compiled function that memory.gpu (nn.memory_tiers) plans runs on the GPU only, "
        "but %s",
        task.arg.op, on_cpu ? "nn.run_tasks_on chose the CPU" : "this operation runs on CPUs only");
}

}  // namespace

PlannedRun::PlannedRun(Program& program) : program_(program) {
    finish_deferred();
    prepare_for_tiers(program);
    if (tiers().on_gpu())
        for (const Task& task : program.tasks) need_gpu(task);
    make_plan();
}

PlannedRun::~PlannedRun() {
    // Only a shutdown leaves arguments here. The program owns some of them.
    for (size_t task = 0; task < deferred_arguments_.size(); ++task)
        if (deferred_arguments_[task] != &tasks().tasks[task].arg)
            std::free(deferred_arguments_[task]);
}

bool PlannedRun::plan_in_existing_slots(const std::vector<double>& seconds) {
    if (!slots_exist()) return false;
    ExistingSlots existing{blocks_of_slots(), {}, {}};
    for (const HomeOf& home : homes())
        if (home.at != in_store) existing.others.push_back(home.tile);
    existing.place_of = home_of_tile;
    plan_ = plan_in_slots(program_, seconds, tier_limits(program_), existing);
    return bool(plan_.lines);
}

// Uses the slots that exist if their memory suffices.
void PlannedRun::make_plan() {
    const Planning planning;
    const bool known = program_.seconds.size() == program_.tasks.size();
    const auto seconds = known ? program_.seconds : nominal_seconds(program_.tasks);
    drop_plan();  // no plan exists if this function throws
    idle();       // workers that wait for tasks would slow down the search
    if (!plan_in_existing_slots(seconds)) {
        PlanLimits limits = tier_limits(program_);
        if (slots_exist() && uses_homes(program_)) limits.all_tiles = 0;  // as in needs_plan()
        plan_ = plan_program(program_, seconds, limits);
    }
    for (const Tile* other : plan_.lines->others()) others_.push_back({other, other->number});
    make_extents();
    promise_ram(plan_.lines->kept_temporaries());
    first_ = run_of(plan_.first);
    next_ = run_of(plan_.next);
    last_ = run_of(plan_.last);
    iteration_ = run_of(plan_.iteration);
    next_iteration_ = run_of(plan_.next_iteration);
    tail_ = run_of(plan_.tail);
    ensure_awake();
}

// Tasks under way may use the arguments of the plan's program.
void PlannedRun::drop_plan() {
    if (plan_.cut) wait_for_tasks();
    plan_ = {};
    others_.clear();
}

PlannedRun::Run PlannedRun::run_of(const RunPlan& plan) const {
    return {&plan, merged_steps(plan), dead_in(plan)};
}

bool PlannedRun::others_exist() const {
    std::unordered_map<const Tile*, uint64_t> now;
    for (const HomeOf& home : homes()) now[home.tile] = home.tile->number;
    return std::all_of(others_.begin(), others_.end(), [&](const auto& other) {
        const auto at = now.find(other.first);
        return at != now.end() && at->second == other.second;
    });
}

PlannedRun::Dead PlannedRun::dead_in(const RunPlan& run) const {
    const Line& line = run.line.line;
    const auto& tasks = run.line.tasks;
    std::unordered_set<const Tile*> seen;
    for (const TilePtr& tile : program_.die_at_end) seen.insert(tile.get());  // copied later
    Dead out(tasks.size());
    for (uint32_t position = uint32_t(tasks.size()); position-- > 0;)
        for (const auto* a = line.accesses.begin(position); a != line.accesses.end(position); ++a) {
            const Tile* const tile = plan_.lines->tiles()[a->tile];
            const bool lasts = line.is_placed(a->tile) || line.tiles[a->tile].after;
            if (!lasts && seen.insert(tile).second) out[position].push_back(&mutable_tile(tile));
        }
    return out;
}

void PlannedRun::make_extents() {
    const StorePlaces places = store_places(plan_);
    std::vector<std::shared_ptr<Extent>> of_place(places.bytes.size());
    extents_.assign(plan_.lines->tiles().size(), nullptr);
    for (uint32_t i = 0; i < extents_.size(); ++i) {
        const Tile& tile = *plan_.lines->tiles()[i];
        const uint32_t place = places.of_tile[i];
        if (tile.persists() || place == StorePlaces::none) continue;
        if (!of_place[place]) of_place[place] = new_extent(tile, places.bytes[place]);
        extents_[i] = of_place[place];
    }
}

bool PlannedRun::placed_persistent(uint32_t tile) const {
    return plan_.lines->is_placed(tile) && plan_.lines->tiles()[tile]->persists();
}

bool PlannedRun::carries(const Tile& tile) const {
    const Line& line = (plan_.iterations() > 0 ? plan_.tail : plan_.first).line.line;
    for (size_t i = 0; i < plan_.lines->tiles().size(); ++i)
        if (plan_.lines->tiles()[i] == &tile) return line.tiles[i].after;
    return false;
}

// The places that a run reserves for persistent tiles, before it or after it.
PlannedRun::Places PlannedRun::places(const Run& run, Layout Placement::*end) const {
    Places out;
    for (uint32_t i = 0; i < plan_.lines->tiles().size(); ++i)
        if (placed_persistent(i)) out.emplace(plan_.lines->tiles()[i], run.plan->place_of(i, end));
    return out;
}

// The run may use every block of the slots except those that it reserves. So a value that is needed
// later is in a place that the run reserves for it, or in the store.
void PlannedRun::check_homes(const Run& run, Layout Placement::*end) const {
    const auto refuse = [&](const Tile& tile, const char* problem) {
        fail("%s %s %s a run of program %u: an error of nnlua, which would lose its value",
             name_of(tile).text.c_str(), problem, end == &Placement::first ? "before" : "after",
             program_.number);
    };
    Places reserved = places(run, end);
    std::vector<HomeOf> in_slots;
    for (const HomeOf& home : homes()) {
        const auto place = reserved.extract(home.tile);
        if (home.at != (place ? place.mapped() : in_store))
            refuse(*home.tile, "is not in the place that is reserved for it");
        if (home.at != in_store) in_slots.push_back(home);
    }
    for (const auto& [tile, place] : reserved) refuse(*tile, "has left its place");
    std::ranges::sort(in_slots, {},
                      [](const HomeOf& home) { return std::pair(home.at.level, home.at.slot); });
    for (size_t i = 1; i < in_slots.size(); ++i) {
        const HomeOf &before = in_slots[i - 1], &after = in_slots[i];
        const uint32_t end = before.at.slot + slot_blocks(int64_t(before.tile->bytes));
        if (before.at.level == after.at.level && end > after.at.slot)
            refuse(*after.tile, ("shares memory with " + name_of(*before.tile).text).c_str());
    }
}

// Brings persistent tiles where the run begins with them, and others to the store.
void PlannedRun::move_to_begin(const Run& run) {
    const Places reserved = places(run, &Placement::first);
    // Stores first: loads use their slots.
    for (const HomeOf& home : homes()) {
        const auto place = reserved.find(home.tile);
        if (home.at != in_store && (place == reserved.end() || place->second != home.at))
            put_home(*home.tile, in_store);
    }
    for (const Tile* tile : plan_.lines->tiles())
        if (const auto place = reserved.find(tile); place != reserved.end())
            put_home(mutable_tile(tile), place->second);
    // Reserves all space in the store before the first task, so that a full disk changes nothing.
    for (const Run* any : {&first_, &next_, &last_, &iteration_, &tail_})
        for (const Placement::Step& step : any->plan->lowest().placement.steps)
            if (step.kind == Placement::store && placed_persistent(step.index))
                extent_of(mutable_tile(plan_.lines->tiles()[step.index]));
}

bool PlannedRun::slots_suffice() const {
    return std::ranges::equal(blocks_of_slots(), plan_.blocks_of_levels(), std::greater_equal());
}

bool PlannedRun::slots_are_as_planned() const {
    return blocks_of_slots() == plan_.blocks_of_levels();
}

void PlannedRun::prepare() {
    finish_deferred(this);
    const bool has_plan = plan_.lines != nullptr;  // the last make_plan() did not throw
    if (!has_plan || (slots_exist() && (!slots_suffice() || !others_exist()))) make_plan();
    if (!slots_are_as_planned()) make_slots(plan_.blocks_of_levels());
    if (!slots(0).in_ram()) make_staging_buffer(program_);
    move_to_begin(deferred_arguments_.empty() ? first_ : next_);
}

void PlannedRun::submit(const std::vector<TaskArg*>& arguments) {
    const Run& begin = deferred_arguments_.empty() ? first_ : next_;
    check_homes(begin, &Placement::first);
    if (deferred_arguments_.empty()) {
        submit_run(first_, arguments);
    } else {
        std::vector<TaskArg*> merged = arguments;
        for (uint32_t task : plan_.lines->deferred()) merged[task] = deferred_arguments_[task];
        submit_run(next_, merged);
        deferred_arguments_.clear();
    }
    if (plan_.iterations() > 0) {
        submit_loop(arguments);
        submit_run(tail_, arguments);
    }
    check_homes(plan_.iterations() > 0 ? tail_ : begin, &Placement::last);
    if (!plan_.lines->has_deferred()) return;
    deferred_arguments_.assign(arguments.size(), nullptr);
    for (uint32_t task : plan_.lines->deferred()) deferred_arguments_[task] = arguments[task];
    std::vector<const Tile*> used;
    for (uint32_t number : plan_.lines->deferred()) {
        const Task& task = tasks().tasks[number];
        for (int i = 0; i < task.handles; ++i)
            if (task.tiles[i]->persists()) used.push_back(task.tiles[i].get());
    }
    defer(this, used);
}

// Only as many tasks are submitted at once as two iterations have, because each takes memory.
void PlannedRun::submit_loop(const std::vector<TaskArg*>& arguments) {
    const Program::Loop& loop = tasks().loops[0];
    const auto most = int64_t(iteration_.steps.size() + loop.end - loop.begin);
    for (uint32_t i = 0; i < loop.iterations; ++i) {
        wait_for([=] { return unfinished_tasks() <= most; });
        submit_rows(i, arguments);
        std::vector<TaskArg*> of_iteration = arguments;
        for (size_t t = loop.begin; t < loop.end; ++t)
            if (const Task& task = tasks().tasks[t]; arguments[t] != &task.arg)
                of_iteration[t] = argument_of_iteration(task, *arguments[t], i * loop.randoms);
        submit_run(i == 0 ? iteration_ : next_iteration_, of_iteration);
    }
    for (const TilePtr& tile : loop.dies_after)
        if (tile->handle && !carries(*tile)) submit_invalidation(*tile);
}

// The tasks that only this iteration has.
void PlannedRun::submit_rows(uint32_t iteration, const std::vector<TaskArg*>& arguments) {
    const Program& program = tasks();
    const Program::Loop& loop = program.loops[0];
    for (size_t t = loop.begin; t < loop.end; ++t) {
        const Task& task = program.tasks[t];
        if (task.iteration != int32_t(iteration)) continue;
        const PlannedTask unplaced{nullptr, task.handles - task.gates, next_priority()};
        nn::submit(task, arguments[t], nullptr, &unplaced);
        for (const TilePtr& tile : program.dies_after[t]) submit_invalidation(*tile);
    }
}

// Eager tasks may have taken tiles from home since, which these tasks do not use.
void PlannedRun::run_deferred() {
    move_to_begin(last_);
    check_homes(last_, &Placement::first);
    submit_run(last_, std::exchange(deferred_arguments_, {}));
    check_homes(last_, &Placement::last);
}

void PlannedRun::submit_run(const Run& run, const std::vector<TaskArg*>& arguments) {
    for (uint32_t i = 0; i < plan_.lines->tiles().size(); ++i)
        if (!plan_.lines->is_placed(i) && is_in_store(*plan_.lines->tiles()[i]))
            bring_to_memory(mutable_tile(plan_.lines->tiles()[i]));
    for (const LevelStep& step : run.steps)
        if (step.step->kind == Placement::run)
            submit_task(run, step.step->index, arguments);
        else
            submit_transfer_step(step);
    for (uint32_t level = 0; level < run.plan->levels(); ++level)
        count_planned_tasks(level, run.plan->level(level).line.tasks.size() + 1);
    end_run(run);
}

void PlannedRun::submit_task(const Run& run, uint32_t position,
                             const std::vector<TaskArg*>& arguments) {
    const uint32_t number = run.plan->line.tasks[position];
    const uint32_t first = run.plan->line.line.accesses.first[position];
    const Task& task = tasks().tasks[number];
    const bool in_ram = slots(0).in_ram();
    const uint32_t* const places = &run.plan->placement.slots[first];
    StarpuHandle handles[max_handles];
    for (int i = 0; i < task.handles - task.gates; ++i) {
        const auto bytes = int64_t(task.tiles[i]->bytes);
        handles[i] = places[i] == no_slot
                         ? nullptr
                         : slots(0).claim(places[i], slot_blocks(bytes),
                                          task.is_transfer() && in_ram ? bytes : 0);
    }
    const PlannedTask planned{handles, task.handles - task.gates, next_priority()};
    if (!task.is_transfer())
        nn::submit(task, arguments[number], nullptr, &planned);
    else if (handles[0] && !in_ram)
        submit_through_staging_buffer(task, handles, slots(0).memory(places[0]));
    else
        submit_rank_transfer(task, handles);
    for (Tile* tile : run.dead[position])
        if (tile->handle) submit_invalidation(*tile);
}

void PlannedRun::submit_transfer_step(const LevelStep& level_step) {
    const Placement::Step& step = *level_step.step;
    const bool loads = step.kind == Placement::load;
    Tile& tile = mutable_tile(plan_.lines->tiles()[step.index]);
    const TilePlace place{level_step.level, step.slot};
    if (level_step.slot_below != no_slot)
        return submit_level_transfer(loads, place, level_step.slot_below, tile, step.due);
    submit_slot_transfer(loads, place, tile,
                         tile.persists() ? extent_of(tile) : extents_[step.index], step.due);
}

void PlannedRun::end_run(const Run& run) {
    for (uint32_t i = 0; i < plan_.lines->tiles().size(); ++i)
        if (placed_persistent(i))
            move_home(mutable_tile(plan_.lines->tiles()[i]),
                      run.plan->place_of(i, &Placement::last));
}

}  // namespace nn
