// Programs with a loop: however it is cut, a run leaves the same values; and the parts of a plan,
// one after the other, leave those of the recorded program.
#include "engine/graph/passes/loops.h"

#include <random>

#include "engine/graph/passes/passes.h"
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

void run_plan(Values& values, const Program& program, const ProgramPlan& plan, bool follows) {
    for (const uint32_t task : (follows ? plan.next : plan.first).line.tasks)
        values.run(program.tasks[task]);
    for (uint32_t i = 0; i < plan.iterations(); ++i)
        run_iteration(values, program, plan.iteration, int32_t(i));
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
    std::mt19937 random(4);
    limit_search(0);
    for (int round = 0; round < 40; ++round) {
        const bool clips = round % 2;
        const auto t = looped_training(random, clips);
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
    limit_search(4);
}

// Checks that a place still has the tile when a run loads it. owners: tiles, by the place.
void check_owners(const RunPlan& run, const StorePlaces& places, std::vector<uint32_t>& owners) {
    const Line& line = run.line.line;
    const auto own = [&](uint32_t tile) {
        const uint32_t place = places.of_tile[tile];
        REQUIRE(place != StorePlaces::none);
        CHECK(places.bytes[place] == line.bytes_of(tile));
        return &owners[place];
    };
    for (uint32_t tile = 0; tile < line.tiles.size(); ++tile)
        if (line.is_placed(tile) && line.tiles[tile].before &&
            run.placement.first[tile] == no_slot) {
            uint32_t* const owner = own(tile);
            CHECK((*owner == tile || *owner == StorePlaces::none));
            *owner = tile;
        }
    for (const Placement::Step& step : run.placement.steps)
        if (step.kind == Placement::store)
            *own(step.index) = step.index;
        else if (step.kind == Placement::load)
            CHECK(*own(step.index) == step.index);
}

TEST_CASE("tiles that share a place on the disk are never there at the same time") {
    std::mt19937 random(5);
    int64_t separate = 0, needed = 0;
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        const auto t =
            round % 3 == 0 ? flat_training(random, round % 2) : looped_training(random, round % 2);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-5);
        PlanLimits limits;
        limits.rates = {2, 1e9, 1e-5};
        limits.memory = 3 << 20;
        const ProgramPlan plan = plan_program(t->program, seconds, limits);
        const StorePlaces places = store_places(plan);
        std::vector<uint32_t> owners(places.bytes.size(), StorePlaces::none);
        for (const RunPlan* head : {&plan.first, &plan.steady(), &plan.steady()}) {
            check_owners(*head, places, owners);
            if (plan.iterations() == 0) continue;
            for (int i = 0; i < 3; ++i) check_owners(plan.iteration, places, owners);
            check_owners(plan.tail, places, owners);
        }
        if (plan.lines->has_deferred()) check_owners(plan.last, places, owners);
        for (uint32_t tile = 0; tile < places.of_tile.size(); ++tile)
            if (places.of_tile[tile] != StorePlaces::none)
                separate += plan.first.line.line.bytes_of(tile);
        needed += places.all_bytes();
    }
    CHECK(needed < 0.95 * double(separate));
}

}  // namespace nn::engine_test
