// Orders and plans of made-up training programs: whatever the order, every run leaves the values of
// the recorded order, also if updates run with the next run's first tasks.
#include <functional>
#include <random>
#include <unordered_map>

#include "engine/tiers/plan.h"
#include "engine/tiers/search.h"
#include "tests/cpp/engine_test.h"
#include "tests/cpp/made_up_training.h"

namespace nn::engine_test {

TEST_CASE("every order of a plan computes the values of the recorded order") {
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        const bool clips = random() % 2;
        const auto t = flat_training(random, clips);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        const Accesses accesses = accesses_without_gates(t->program);
        const bool by_layer = random() % 2;
        const double late = double(random() % 5) / 4;
        const TaskOrder order = order_tasks(t->program, accesses, {by_layer, late});
        if (clips) CHECK(order.deferred.size() == t->persistent.size() / 2);
        REQUIRE(order.body.size() + order.deferred.size() == t->program.tasks.size());
        Values expected, found;
        constexpr int runs = 3;
        for (int run = 0; run < runs; ++run) {
            for (uint32_t task = 0; task < t->program.tasks.size(); ++task)
                expected.run(t->program.tasks[task]);
            for (uint32_t task : run ? merge_deferred(order, accesses) : order.body)
                found.run(t->program.tasks[task]);
        }
        for (uint32_t task : order.deferred) found.run(t->program.tasks[task]);
        CAPTURE(round, by_layer, late, clips);
        for (const TilePtr& tile : t->persistent) REQUIRE(expected.of(tile) == found.of(tile));
    }
}

TEST_CASE("a layer serves all microbatches in a row, and gradients are reduced at once") {
    std::mt19937 random(11);
    auto t = flat_training(random, false);
    while (t->program.microbatches.size() < 2) t = flat_training(random, false);
    const Accesses accesses = accesses_without_gates(t->program);
    const TaskOrder order = order_tasks(t->program, accesses, {true, 0});
    const auto changes = [&](const std::vector<uint32_t>& tasks) {
        int out = 0;
        for (size_t i = 1; i < tasks.size(); ++i)
            out += t->program.tasks[tasks[i]].tiles[0] != t->program.tasks[tasks[i - 1]].tiles[0];
        return out;
    };
    CHECK(changes(order.body) < changes(order_tasks(t->program, accesses, {}).body));
}

TEST_CASE("plans of training programs are placed, checked and predicted", "[sweep]") {
    std::mt19937 random(3);
    for (int round = 0; round < 60; ++round) {
        const bool clips = random() % 2;
        const auto t = flat_training(random, clips);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        PlanLimits limits;
        limits.rates = {2, 1e9, 1e-5};
        limits.reserved = 1000;
        limits.memory = 0;
        const std::string refusal = error_of([&] { plan_program(t->program, seconds, limits); });
        const size_t at = refusal.find('(');
        REQUIRE(at != std::string::npos);
        const int64_t least = std::stoll(refusal.substr(at + 1));
        limits.memory = least - 1;
        CHECK_THROWS_AS(plan_program(t->program, seconds, limits), OutOfMemory);
        double before = 1e9;
        for (const int64_t ram : {least, 2 * least, int64_t(1) << 30}) {
            limits.memory = ram;
            const ProgramPlan plan = plan_program(t->program, seconds, limits);
            CHECK(plan.blocks * slot_block + plan.lines->kept() + limits.reserved <= ram);
            const Prediction time = predict(plan, seconds, limits);
            CHECK(time.seconds >= time.computing * 0.95);
            CHECK(time.seconds >= time.link_busy[0] * 0.95);
            CHECK(time.seconds <= before * 1.3);
            before = time.seconds;
            if (ram > least * 10) CHECK(time.link_busy[0] == 0);
        }
    }
}

namespace {

// A GPU above RAM above a disk that is slower than the links. memory: of the GPU.
PlanLimits three_tiers(int64_t memory, int64_t ram) {
    PlanLimits limits;
    limits.memory = memory;
    limits.rates = {1, 1e9, 1e-5, true};
    limits.rest = int64_t(1) << 20;
    limits.tier = "the GPU's memory", limits.setting = "memory.gpu";
    limits.below = {{ram, 1000, {1, 3e8, 1e-5}}};
    return limits;
}

int64_t least_in(const std::string& refusal) {
    const size_t at = refusal.find('(');
    REQUIRE(at != std::string::npos);
    return std::stoll(refusal.substr(at + 1));
}

std::vector<const RunPlan*> runs_of(const ProgramPlan& plan) {
    if (!plan.lines->has_deferred()) return {&plan.first};
    return {&plan.first, &plan.next, &plan.last};
}

}  // namespace

TEST_CASE("plans of a GPU above RAM above a disk are placed, checked and predicted", "[sweep]") {
    std::mt19937 random(7);
    for (int round = 0; round < 12; ++round) {
        const auto t = flat_training(random, random() % 2);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        PlanLimits limits = three_tiers(0, 0);
        limits.below[0].memory = 1;
        limits.memory = least_in(error_of([&] { plan_program(t->program, seconds, limits); }));
        limits.memory += int64_t(random() % 4) << 18;
        const std::string refusal = error_of([&] { plan_program(t->program, seconds, limits); });
        CHECK_THAT(refusal, Catch::Contains("of RAM") && Catch::Contains("memory.ram"));
        const int64_t least = least_in(refusal);
        limits.below[0].memory = least - 1;
        CHECK_THROWS_AS(plan_program(t->program, seconds, limits), OutOfMemory);
        for (const int64_t ram : {least, least + (1 << 20), 4 * least, int64_t(1) << 30}) {
            limits.below[0].memory = ram;
            const ProgramPlan plan = plan_program(t->program, seconds, limits);
            REQUIRE(plan.below.size() == 1);
            CHECK(plan.blocks * slot_block <= limits.memory);
            CHECK(plan.below[0].blocks * slot_block + plan.lines->kept() + 1000 <= ram);
            for (const RunPlan* run : runs_of(plan)) {
                REQUIRE(check_placement(run->line.line, run->placement) == "");
                const RunPlan& below = run->level(1);
                REQUIRE(check_placement(below.line.line, below.placement) == "");
                REQUIRE(check_levels(*run) == "");
            }
            const Prediction time = predict(plan, seconds, limits);
            for (const double busy : {time.computing, time.link_busy[0], time.link_busy[1]})
                CHECK(time.seconds >= busy * 0.999);
            const Placement& below = plan.steady().level(1).placement;
            CHECK(below.loaded + below.stored >= plan.below[0].least_moved);
            if (ram > least * 20) CHECK(below.loaded + below.stored == 0);
            // Without the lower level, the same plan takes no longer.
            CHECK(predict(plan.steady(), seconds, limits.rates).seconds <= time.seconds * 1.05);
        }
    }
}

TEST_CASE("four levels are placed, checked and predicted") {
    std::mt19937 random(17);
    int64_t moved = 0;  // in the lowest level
    for (int round = 0; round < 12; ++round) {
        const auto t = flat_training(random, round % 2);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        PlanLimits limits = three_tiers(5 << 19, 5 << 19);
        for (const double rate : {2e8, 1e8})
            limits.below.push_back(
                {5 << 19, 1000, {1, rate, 1e-5}, "the slow memory", "memory.slow"});
        const ProgramPlan plan = plan_program(t->program, seconds, limits);
        REQUIRE(plan.below.size() == 3);
        for (const RunPlan* run : runs_of(plan)) {
            REQUIRE(run->levels() == 4);
            for (size_t level = 0; level < 4; ++level) {
                const RunPlan& of = run->level(level);
                REQUIRE(check_placement(of.line.line, of.placement) == "");
                CHECK(of.placement.blocks == plan.blocks_of_levels()[level]);
                CHECK(of.placement.blocks * slot_block <= 5 << 19);
            }
            REQUIRE(check_levels(*run) == "");
        }
        const Prediction time = predict(plan, seconds, limits);
        REQUIRE(time.link_busy.size() == 4);
        for (const double busy : time.link_busy) CHECK(time.seconds >= busy * 0.999);
        RunPlan damaged = plan.steady();
        auto& steps = damaged.level(3).placement.steps;
        moved += damaged.level(3).placement.loaded;
        const auto is_load = [](const auto& step) { return step.kind == Placement::load; };
        if (std::erase_if(steps, is_load) > 0)
            CHECK_THAT(check_levels(damaged), Catch::Contains("of level 3 does not hold"));
        limits.below[2].memory = 1;
        CHECK_THAT(error_of([&] { plan_program(t->program, seconds, limits); }),
                   Catch::Contains("of the slow memory") && Catch::Contains("memory.slow"));
    }
    CHECK(moved > 0);
}

TEST_CASE("another program is planned in the slots of both levels, and leaves tiles at home") {
    std::mt19937 random(13);
    int found = 0;
    for (int round = 0; round < 30; ++round) {
        const auto t = flat_training(random, random() % 2);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        const PlanLimits limits = three_tiers(3 << 20, 4 << 20);
        const ProgramPlan plan = plan_program(t->program, seconds, limits);
        std::unordered_map<const Tile*, TilePlace> places;
        for (uint32_t i = 0; i < plan.lines->tiles().size(); ++i)
            for (uint32_t level : {1u, 0u})
                if (const uint32_t slot = plan.steady().level(level).placement.first[i];
                    slot != no_slot || level == 1)
                    places[plan.lines->tiles()[i]] = {level, slot};
        Program other(recording);  // reads all weights
        ExistingSlots slots{plan.blocks_of_levels(), {}, {}};
        for (size_t i = 0; i < t->persistent.size(); ++i) {
            if (i % 2)
                slots.others.push_back(t->persistent[i].get());
            else
                add_task(other, "", {{t->persistent[i], Mode::read}});
        }
        slots.place_of = [&](const Tile& tile) { return places.at(&tile); };
        const std::vector<double> other_seconds(other.tasks.size(), 1e-3);
        const ProgramPlan in_slots = plan_in_slots(other, other_seconds, limits, slots);
        REQUIRE(in_slots.lines);
        const RunPlan& below = in_slots.first.level(1);
        CHECK(check_levels(in_slots.first) == "");
        for (uint32_t i = 0; i < in_slots.lines->tiles().size(); ++i) {
            const TilePlace at = places.at(in_slots.lines->tiles()[i]);
            CHECK(in_slots.first.placement.last[i] == slot_in(0, at));
            CHECK(below.placement.last[i] == slot_in(1, at));
            found += slot_in(1, at) != no_slot;
        }
    }
    CHECK(found > 30);
}

namespace {

std::vector<Placement::Step>::iterator find(RunPlan& run, Placement::Kind kind, size_t from = 0) {
    auto& steps = run.placement.steps;
    while (steps[from].kind != kind) ++from;
    return steps.begin() + std::ptrdiff_t(from);
}
void forget(Layout& layout) { layout.assign(layout.size(), no_slot); }

using Damage = std::function<void(RunPlan& upper, RunPlan& lower)>;
// What the checker says about each damage. home: a tile in a slot of the lower level at first.
std::vector<std::pair<const char*, Damage>> damages(size_t middle, uint32_t home) {
    const auto erase_below = [=](Placement::Kind kind) {
        return [=](RunPlan&, RunPlan& b) { b.placement.steps.erase(find(b, kind, middle)); };
    };
    return {
        {"of level 1 does not hold", erase_below(Placement::load)},
        {"is lost", erase_below(Placement::store)},
        {"transfers of level 0 are planned", [](auto&, auto& b) { b.line.tasks.pop_back(); }},
        {"the disk does not have its value",
         [=](auto&, auto& b) {
             const uint32_t slot = b.placement.first[home];
             b.placement.steps.insert(b.placement.steps.begin(), {Placement::load, home, slot, 0});
         }},
        {"has no slot in level 1",
         [=](auto&, auto& b) { find(b, Placement::load, middle)->slot = b.placement.blocks; }},
        {"has no slot in level 0",
         [](auto& a, auto&) { find(a, Placement::load)->slot = a.placement.blocks; }},
        {"of level 1 does not hold",
         [](auto&, auto& b) {
             for (uint32_t i = 0; i < b.line.line.accesses.tasks(); ++i)
                 if (b.line.line.accesses.list[i].mode == Mode::read) ++b.placement.slots[i];
         }},
        {"of level 0 does not hold",
         [](auto& a, auto&) {
             for (uint32_t& slot : a.placement.slots)
                 if (slot != no_slot) slot ^= 1;
         }},
        {"of level 1 does not hold", [](auto&, auto& b) { forget(b.placement.first); }},
        {"at the end", [](auto&, auto& b) { forget(b.placement.last); }},
        {"at the end", [](auto& a, auto&) { forget(a.placement.last); }},
    };
}

}  // namespace

TEST_CASE("the checker of two levels finds what is wrong with a damaged plan") {
    std::mt19937 random(21);
    std::unique_ptr<Training> t;
    ProgramPlan plan;
    const PlanLimits limits = three_tiers(5 << 19, 5 << 19);
    int64_t moved = 0;
    do {
        t = flat_training(random, false);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        plan = plan_program(t->program, seconds, limits);
        const Placement& below = plan.steady().level(1).placement;
        moved = below.loaded + below.stored;
    } while (t->persistent.size() < 12 || moved < (8 << 20));
    const RunPlan &upper = plan.steady(), &lower = upper.level(1);
    REQUIRE(check_levels(upper) == "");
    const auto& first = lower.placement.first;
    const auto home =
        std::find_if(first.begin(), first.end(), [](uint32_t slot) { return slot != no_slot; }) -
        first.begin();
    for (const auto& [problem, damage] :
         damages(lower.placement.steps.size() / 2, uint32_t(home))) {
        RunPlan damaged = upper;
        damage(damaged, damaged.level(1));
        CAPTURE(problem);
        CHECK_THAT(check_levels(damaged), Catch::Contains(problem));
    }
}

}  // namespace nn::engine_test
