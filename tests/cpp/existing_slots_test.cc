// Plans of made-up programs in slots that exist: only tiles that a plan places have slots in it.
// And the memory that a refused program needs, by its error, suffices.
#include <random>
#include <unordered_map>

#include "engine/tiers/plan.h"
#include "tests/cpp/engine_test.h"
#include "tests/cpp/made_up_training.h"

namespace nn::engine_test {
namespace {

// A GPU above RAM above a disk.
PlanLimits three_tiers(int64_t memory, int64_t ram) {
    PlanLimits limits;
    limits.memory = memory;
    limits.rates = {1, 1e9, 1e-5, true};
    limits.rest = int64_t(1) << 20;
    limits.below = {{ram, 1000, {1, 3e8, 1e-5}}};
    return limits;
}

// Tiles on both sides of every size from which tiles are placed.
std::vector<TilePtr> tiles_of_all_sizes(std::mt19937& random) {
    std::vector<TilePtr> out;
    for (int i = 0; i < 60; ++i)
        out.push_back(new_tile((1 + random() % 3) << (10 + random() % 8), true));
    return out;
}

using Places = std::unordered_map<const Tile*, TilePlace>;
Places places_after(const ProgramPlan& plan) {
    Places out;
    for (uint32_t i = 0; i < plan.lines->tiles().size(); ++i)
        out[plan.lines->tiles()[i]] = plan.steady().place_of(i, &Placement::last);
    return out;
}

// At the end of each iteration of the loop.
void add_small_tiles(Program& program) {
    Program small(recording);
    for (int i = 0; i < 20; ++i) add_task(small, "", {{new_tile(3000, false), Mode::write}});
    Program::Loop& loop = program.loops[0];
    program.tasks.insert(program.tasks.begin() + ptrdiff_t(loop.end), small.tasks.begin(),
                         small.tasks.end());
    loop.end += small.tasks.size();
}

int64_t least_in(const std::string& refusal) {
    const size_t at = refusal.find('(');
    REQUIRE(at != std::string::npos);
    return std::stoll(refusal.substr(at + 1));
}

}  // namespace

TEST_CASE("a program in the slots of another one gives slots to tiles that it places only") {
    std::mt19937 random(19);
    size_t leave = 0, stay = 0;
    for (int round = 0; round < 60; ++round) {
        const auto tiles = tiles_of_all_sizes(random);
        Program first(recording), second(recording);
        int64_t bytes = 0;
        for (size_t i = 0; i < tiles.size(); ++i) {
            bytes += int64_t(tiles[i]->bytes);
            add_task(first, "", {{tiles[i], Mode::read_write}});
            if (i % 3 == 0) add_task(second, "", {{tiles[i], Mode::read}});
        }
        PlanLimits limits = three_tiers(bytes / 2, bytes / 3);
        if (round % 2) limits.rest = 0, limits.below.clear();
        const std::vector<double> seconds(tiles.size(), 1e-3);
        const ProgramPlan plan = plan_program(first, seconds, limits);
        const Places places = places_after(plan);
        const auto place_of = [&](const Tile& tile) { return places.at(&tile); };
        ExistingSlots slots{plan.blocks_of_levels(), {}, place_of};
        for (const auto& [tile, place] : places)
            if (place != in_store) slots.others.push_back(tile);
        const ProgramPlan in_slots = plan_in_slots(second, seconds, limits, slots);
        if (!in_slots.lines) continue;  // small tiles would take too much beside the slots
        REQUIRE(in_slots.blocks_of_levels() == slots.blocks);
        leave += slots.others.size();
        for (uint32_t i = 0; i < in_slots.lines->tiles().size(); ++i) {
            const TilePlace home = places.at(in_slots.lines->tiles()[i]);
            const bool is_placed = in_slots.lines->is_placed(i);
            stay += is_placed && home != in_store;
            for (Layout Placement::*end : {&Placement::first, &Placement::last})
                CHECK(in_slots.first.place_of(i, end) == (is_placed ? home : in_store));
        }
    }
    CHECK(leave > stay + 50);
    CHECK(stay > 100);
}

TEST_CASE("a program with a loop is planned in the slots of all levels") {
    std::mt19937 random(29);
    for (int round = 0; round < 8; ++round) {
        const auto t = looped_training(random, round % 2);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        const PlanLimits limits = three_tiers(3 << 20, 4 << 20);
        const ProgramPlan plan = plan_program(t->program, seconds, limits);
        const Places places = places_after(plan);
        const auto place_of = [&](const Tile& tile) {
            const auto at = places.find(&tile);
            return at == places.end() ? in_store : at->second;
        };
        const ExistingSlots slots{plan.blocks_of_levels(), {}, place_of};
        const ProgramPlan again = plan_in_slots(t->program, seconds, limits, slots);
        REQUIRE(again.lines);
        REQUIRE(again.blocks_of_levels() == slots.blocks);
        CHECK(check_levels(again.steady()) == "");
    }
}

// Copies of a microbatch in one iteration have small tiles of their own, and a larger memory has a
// larger reserve.
TEST_CASE("the memory that a refused program needs suffices") {
    std::mt19937 random(37);
    for (int round = 0; round < 30; ++round) {
        const bool has_loop = round % 3 > 0, is_clipped = random() % 2;
        const auto t =
            has_loop ? looped_training(random, is_clipped) : flat_training(random, is_clipped);
        if (has_loop) add_small_tiles(t->program);
        const std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        PlanLimits limits;
        limits.rates = {2, 1e9, 1e-5};
        limits.reserved_in = [](int64_t memory) { return std::max<int64_t>(1000, memory / 32); };
        const auto plan_in = [&](int64_t memory) {
            limits.memory = memory, limits.reserved = limits.reserved_in(memory);
            return error_of([&] { plan_program(t->program, seconds, limits); });
        };
        const int64_t least = least_in(plan_in(1 + int64_t(random() % (1 << 20))));
        CHECK(plan_in(least) == "");
        CHECK(least_in(plan_in(least - 1)) == least);
    }
}

}  // namespace nn::engine_test
