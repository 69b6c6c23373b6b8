// Programs with a loop: however it is cut, a run leaves the same values; and the parts of a plan,
// one after the other, leave those of the recorded program.
#include "engine/graph/passes/loops.h"

#include <random>

#include "engine/graph/passes/passes.h"
#include "engine/tiers/found_plan.h"
#include "engine/tiers/plan.h"
#include "engine/tiers/search_time.h"
#include "engine/tiers/store_places.h"
#include "tests/cpp/engine_test.h"
#include "tests/cpp/made_up_training.h"

namespace nn::engine_test {
namespace {

std::vector<uint64_t> values_of_all(Values& values, const std::vector<TilePtr>& tiles) {
    std::vector<uint64_t> out;
    for (const TilePtr& tile : tiles) out.push_back(values.of(tile));
    return out;
}

// The tasks of an iteration that only it has come first, as at run time.
void run_iteration(Values& values, const Program& program, const RunPlan& run, int32_t iteration) {
    const Program::Loop& loop = program.loops[0];
    for (size_t t = loop.begin; t < loop.end; ++t)
        if (program.tasks[t].iteration == iteration) values.run(program.tasks[t]);
    for (const uint32_t task : run.line.tasks) values.run(program.tasks[task]);
}

// While it exists, plans do not depend on the speed of the machine.
struct UnlimitedSearch {
    UnlimitedSearch() { limit_search(0); }
    ~UnlimitedSearch() { limit_search(4); }
};

void run_plan(Values& values, const Program& program, const ProgramPlan& plan, bool follows) {
    for (const uint32_t task : (follows ? plan.next : plan.first).line.tasks)
        values.run(program.tasks[task]);
    for (uint32_t i = 0; i < plan.iterations(); ++i)
        run_iteration(values, program, i == 0 ? plan.iteration : plan.next_iteration, int32_t(i));
    for (const uint32_t task : plan.tail.line.tasks) values.run(program.tasks[task]);
}

}  // namespace

TEST_CASE("a loop leaves the same values however it is cut") {
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        const auto t = looped_training(random, round % 2);
        Values expected, found;
        expected.run(t->program);
        const uint32_t iterations = t->program.loops[0].iterations, head = random() % iterations,
                       copies = 1 + random() % 4, rest = (iterations - head) % copies,
                       tail = std::min(iterations - head, rest + copies * uint32_t(random() % 2));
        CAPTURE(round, iterations, head, copies, tail);
        cut_loop(t->program, 0, {head, copies, tail}, random() % 2);
        found.run(t->program);
        CHECK(values_of_all(found, t->persistent) == values_of_all(expected, t->persistent));
        CHECK(t->program.microbatches.size() >= 1 + head + tail);
        while (!t->program.loops.empty()) expand_loop(t->program, 0);
        Values flat;
        flat.run(t->program);
        CHECK(values_of_all(flat, t->persistent) == values_of_all(expected, t->persistent));
        CHECK(t->program.microbatches.size() == 1 + iterations);
    }
}

TEST_CASE("the parts of a plan with a loop compute the values of the recorded program") {
    const UnlimitedSearch unlimited;
    std::mt19937 random(4);
    for (int round = 0; round < 40; ++round) {
        const bool clips = round % 2;
        const auto t = looped_training(random, clips, round % 4 > 1);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-4);
        PlanLimits limits;
        limits.rates = {2, 1e9, 1e-5};
        limits.memory = int64_t(3 + random() % 6) << 20;
        const ProgramPlan plan = plan_program(t->program, seconds, limits);
        const Program& program = plan.cut ? *plan.cut : t->program;
        CAPTURE(round, clips, plan.iterations());
        REQUIRE(plan.iterations() > 0);
        Values expected, found;
        for (int run = 0; run < 3; ++run) {
            expected.run(t->program);
            run_plan(found, program, plan, run > 0 && plan.lines->has_deferred());
        }
        for (const uint32_t task : plan.last.line.tasks) found.run(program.tasks[task]);
        CHECK(values_of_all(found, t->persistent) == values_of_all(expected, t->persistent));
        CHECK(predict(plan, program.seconds, limits).seconds > 0);
    }
}

// The tiles in the places of a store, with the numbers of their values, while runs follow each
// other.
class Store {
public:
    explicit Store(const StorePlaces& places)
        : places_(places),
          contents_(places.bytes.size(), nothing),
          values_(places.of_tile.size(), 0) {}

    // Checks that a tile's place has its value when the run loads it.
    void run(const RunPlan& run) {
        const Line& line = run.line.line;
        for (uint32_t tile = 0; tile < line.tiles.size(); ++tile)
            if (line.is_placed(tile) && line.tiles[tile].before &&
                run.placement.first[tile] == no_slot)
                check(line, tile);
        for (const Placement::Step& step : run.placement.steps) {
            if (step.kind == Placement::load) check(line, step.index);
            if (step.kind == Placement::store)
                content(line, step.index) = {step.index, values_[step.index]};
            if (step.kind != Placement::run) continue;
            for (const auto* a = line.accesses.begin(step.index);
                 a != line.accesses.end(step.index); ++a)
                if (a->mode != Mode::read) ++values_[a->tile];
        }
    }

private:
    using Content = std::pair<uint32_t, int>;  // tile, value
    static constexpr Content nothing{StorePlaces::none, 0};
    Content& content(const Line& line, uint32_t tile) {
        const uint32_t place = places_.of_tile[tile];
        REQUIRE(place != StorePlaces::none);
        CHECK(places_.bytes[place] == line.bytes_of(tile));
        return contents_[place];
    }
    // A tile of before the first run is in its place.
    void check(const Line& line, uint32_t tile) {
        Content& found = content(line, tile);
        if (found == nothing && values_[tile] == 0) found = {tile, 0};
        CHECK(found == Content{tile, values_[tile]});
    }

    const StorePlaces& places_;
    std::vector<Content> contents_;  // by place
    std::vector<int> values_;        // of each tile: how often it has changed
};

TEST_CASE("the place of a tile on the disk has its value whenever it is loaded", "[sweep]") {
    const UnlimitedSearch unlimited;
    std::mt19937 random(5);
    int64_t separate = 0, needed = 0;
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        const auto t = round % 3 == 0 ? flat_training(random, round % 2)
                                      : looped_training(random, round % 2, round % 4 > 1);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-5);
        PlanLimits limits;
        limits.rates = {2, 1e9, 1e-5};
        limits.memory = 3 << 20;
        const ProgramPlan plan = plan_program(t->program, seconds, limits);
        const StorePlaces places = store_places(plan);
        Store store(places);
        for (const RunPlan* head : {&plan.first, &plan.steady(), &plan.steady()}) {
            store.run(*head);
            if (plan.iterations() == 0) continue;
            for (const RunPlan* run :
                 {&plan.iteration, &plan.next_iteration, &plan.next_iteration, &plan.tail})
                store.run(*run);
        }
        if (plan.lines->has_deferred()) store.run(plan.last);
        for (uint32_t tile = 0; tile < places.of_tile.size(); ++tile)
            if (places.of_tile[tile] != StorePlaces::none)
                separate += plan.first.line.line.bytes_of(tile);
        needed += places.all_bytes();
    }
    CHECK(needed < 0.95 * double(separate));
}

TEST_CASE("an order that does not fit on the disk is not chosen if another one does", "[sweep]") {
    const UnlimitedSearch unlimited;
    std::mt19937 random(6);
    int smaller = 0;
    for (int round = 0; round < 40; ++round) {
        CAPTURE(round);
        const auto t = round % 2 ? flat_training(random, false) : looped_training(random, false);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-5);
        PlanLimits limits;
        limits.rates = {2, 1e9, 1e-5};
        limits.memory = 3 << 20;
        const auto plan = [&](int64_t disk) {
            forget_plans();
            limits.disk = disk;
            return plan_program(t->program, seconds, limits);
        };
        const int64_t needed = store_places(plan(0)).all_bytes();
        CHECK(store_places(plan(needed)).all_bytes() <= needed);
        const ProgramPlan other = plan(needed - 1);
        if (bytes_beyond_disk(other, limits) == 0)
            ++smaller;
        else
            CHECK_FALSE(other.choice.order.by_layer);
        limits.disk = 0;  // what is kept was made for less room
        CHECK(store_places(plan_program(t->program, seconds, limits)).all_bytes() == needed);
    }
    CHECK(smaller > 3);
}

}  // namespace nn::engine_test
