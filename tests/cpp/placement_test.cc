// Placements of made-up programs: the checker accepts what place() makes, and rejects damaged ones.
#include "engine/tiers/placement.h"

#include <functional>
#include <random>
#include <set>

#include "engine/tiers/packer.h"
#include "engine/tiers/retain.h"
#include "engine/tiers/slot_table.h"
#include "engine/tiers/stays.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

using Uses = std::vector<std::pair<uint32_t, Mode>>;

struct LineBuilder {
    Line line;
    std::vector<double> times;
    uint32_t tile(bool persists, uint32_t blocks = 1) {
        line.tiles.push_back({blocks, persists, persists});
        return line.accesses.tiles++;
    }
    void task(double seconds, const Uses& uses) {
        for (const auto& [tile, mode] : uses) line.accesses.add(tile, mode);
        line.accesses.end_task();
        times.push_back(seconds);
    }
    Line built(int workers) {
        line.set_times(times, workers);
        return line;
    }
};

// A training step: every layer has weights, two moments, a gradient and a result.
Line training_step(int layers) {
    LineBuilder b;
    std::vector<uint32_t> weight, moment1, moment2, gradient, result;
    for (int i = 0; i < layers; ++i) {
        for (auto* tiles : {&weight, &moment1, &moment2}) tiles->push_back(b.tile(true));
        for (auto* tiles : {&gradient, &result}) tiles->push_back(b.tile(false));
    }
    for (size_t i = 0; i < weight.size(); ++i) {
        Uses uses{{weight[i], Mode::read}, {result[i], Mode::write}};
        if (i) uses.push_back({result[i - 1], Mode::read});
        b.task(1, uses);
    }
    for (size_t i = weight.size(); i-- > 0;) {
        b.task(2, {{weight[i], Mode::read}, {result[i], Mode::read}, {gradient[i], Mode::write}});
        b.task(0.05, {{weight[i], Mode::read_write},
                      {moment1[i], Mode::read_write},
                      {moment2[i], Mode::read_write},
                      {gradient[i], Mode::read}});
    }
    return b.built(1);
}

struct RandomLine {
    Line line;
    uint32_t blocks;
};

// Tasks on random tiles of several sizes, and a few blocks more than the tasks need.
RandomLine random_line(std::mt19937& random) {
    const auto below = [&](uint32_t n) { return uint32_t(random() % n); };
    LineBuilder b;
    const uint32_t sizes = 1 + below(5), tiles = 2 + below(20), tasks = 1 + below(40);
    std::vector<char> written;
    for (uint32_t i = 0; i < tiles; ++i) {
        written.push_back(char(below(2)));
        b.tile(written.back(), below(8) ? 1 + below(sizes) : 0);
    }
    uint32_t most = 1;
    for (uint32_t t = 0; t < tasks; ++t) {
        Uses uses;
        uint32_t in_task = 0;
        for (uint32_t i = 0, operands = 1 + below(4); i < operands; ++i) {
            const uint32_t tile = below(tiles);
            bool used = false;
            for (const auto& use : uses) used = used || use.first == tile;
            if (used) continue;
            const Mode modes[] = {Mode::read, Mode::read_write, Mode::write, Mode::read};
            uses.push_back({tile, written[tile] ? modes[below(4)] : Mode::write});
            written[tile] = true;
            in_task += b.line.tiles[tile].blocks;
        }
        most = std::max(most, in_task);
        b.task(below(100) / 50.0, uses);
    }
    return {b.built(1 + below(3)), most + below(2 * sizes)};
}

// A placement of runs that follow each other.
Placement cycle(const Line& line, uint32_t blocks) {
    const Retention retention(line, blocks, nullptr);
    const auto placed = place(line, blocks, retention, {}, nullptr);
    REQUIRE(placed);
    return *placed;
}

Layout persistent_part(const Line& line, Layout layout) {
    for (uint32_t tile = 0; tile < layout.size(); ++tile)
        if (!line.tiles[tile].before) layout[tile] = no_slot;
    return layout;
}

}  // namespace

TEST_CASE("an end that gives a slot to a tile that is not placed or has no value is refused") {
    LineBuilder b;
    const uint32_t weight = b.tile(true), result = b.tile(false), small = b.tile(true, 0);
    b.task(1, {{weight, Mode::read}, {small, Mode::read_write}, {result, Mode::write}});
    const Line line = b.built(1);
    const Placement correct = cycle(line, 4);
    REQUIRE(check_placement(line, correct) == "");
    for (Layout Placement::*end : {&Placement::first, &Placement::last})
        for (const auto& [tile, problem] :
             {std::pair(small, "is not placed"), std::pair(result, "no value there")}) {
            Placement damaged = correct;
            (damaged.*end)[tile] = 3;
            CHECK_THAT(check_placement(line, damaged), contains(problem));
        }
}

TEST_CASE("placements of random programs are correct and move no less than the lower bound",
          "[sweep]") {
    std::mt19937 random(1);
    int found = 0;
    for (int i = 0; i < 3000; ++i) {
        const RandomLine r = random_line(random);
        const double shares[] = {1, 0.8, 0.4, 0};
        const double seconds = double(random() % 3) / 2;
        std::optional<Margins> margins;
        if (i % 3 > 0) margins = Margins{seconds, double(random() % 3) * 1e-5};
        const PlaceOptions options{shares[random() % 4], double(random() % 3)};
        const Retention retention(r.line, r.blocks, nullptr, margins);
        const auto placed = place(r.line, r.blocks, retention, options, nullptr);
        CAPTURE(i, r.blocks, options.share, options.lead, seconds);
        if (options.share == 0) REQUIRE(placed);
        if (!placed) continue;
        ++found;
        const Placement& placement = *placed;
        REQUIRE(check_placement(r.line, placement) == "");
        REQUIRE(check_succession(r.line, placement, r.line, placement) == "");
        const int64_t least = Retention(r.line, r.blocks, nullptr).least_moved();
        REQUIRE(least <= placement.loaded + placement.stored);
        // Another program with the same homes.
        const Layout homes = persistent_part(r.line, placement.first);
        const LineEnds ends{homes, homes};
        const Retention other(r.line, r.blocks, &ends, margins);
        const auto again = place(r.line, r.blocks, other, options, &ends);
        if (options.share == 0) REQUIRE(again);
        if (!again) continue;
        const Placement& second = *again;
        REQUIRE(check_placement(r.line, second) == "");
        REQUIRE(second.first == homes);
        REQUIRE(second.last == homes);
    }
    CHECK(found > 2900);
}

TEST_CASE("a placement moves little more than the lower bound, and much less than an LRU cache") {
    constexpr int layers = 48;
    const Line line = training_step(layers);
    for (const uint32_t blocks : {28u, 43u, 57u, 86u, 115u}) {
        const Placement placement = cycle(line, blocks);
        REQUIRE(check_placement(line, placement) == "");
        const int64_t moved = placement.loaded + placement.stored,
                      least = Retention(line, blocks, nullptr).least_moved();
        CAPTURE(blocks, moved, least);
        CHECK(least >= 2 * (3 * layers - int64_t(blocks)) * slot_block);
        CHECK(moved <= least * 11 / 10);
        const TransferBytes lru = lru_transfers(line, blocks);
        CHECK(moved < lru.loaded + lru.stored);
    }
}

TEST_CASE("a program that fits moves nothing") {
    const Line line = training_step(8);
    const Placement placement = cycle(line, 8 * 5);
    CHECK(check_placement(line, placement) == "");
    CHECK(placement.loaded + placement.stored == 0);
    CHECK(placement.steps.size() == line.accesses.tasks());
    CHECK(Retention(line, 8 * 5, nullptr).least_moved() == 0);
}

TEST_CASE("a task that needs more memory than there is has no placement") {
    const Line line = training_step(4);
    CHECK(!place(line, 3, Retention(line, 3, nullptr), {0, 0}, nullptr));
    CHECK(place(line, 4, Retention(line, 4, nullptr), {0, 0}, nullptr));
}

TEST_CASE("tiles lose their margins only near tasks that need the memory") {
    constexpr uint32_t tasks = 40, crowded = 20, blocks = 8;
    LineBuilder b;
    std::vector<uint32_t> own;
    for (uint32_t t = 0; t < tasks; ++t) own.push_back(b.tile(true));
    const uint32_t large = b.tile(true, blocks - 1);
    for (uint32_t t = 0; t < tasks; ++t) {
        Uses uses{{own[t], Mode::read}};
        if (t == crowded) uses.push_back({large, Mode::read});
        b.task(1, uses);
    }
    const Line line = b.built(1);
    const Retention retention(line, blocks, nullptr, Margins{2, 0});
    const Stays stays(line, retention.uses(), nullptr);
    const auto placed = Packer(line, stays, blocks, true).pack(stays.all(retention.choose(1)));
    REQUIRE(placed);
    const auto has_margin = [&](uint32_t task) {  // before its use
        for (const PlacedStay& p : *placed)
            if (p.stay.tile == own[task]) return p.room_before >= stays.use(p.stay, 0).before;
        throw Error("the tile has no slot");
    };
    CHECK(!has_margin(crowded + 1));
    CHECK(has_margin(crowded - 8));
    CHECK(has_margin(crowded + 8));
}

TEST_CASE("a task finds slots although another of its tiles divides the free memory") {
    LineBuilder b;
    const uint32_t bottom = b.tile(true), middle = b.tile(true), top = b.tile(true),
                   large = b.tile(true, 2);
    for (int i = 0; i < 8; ++i) b.task(1, {{bottom, Mode::read}, {middle, Mode::read}});
    b.task(1, {{middle, Mode::read}, {large, Mode::read}});
    for (int i = 0; i < 8; ++i) b.task(1, {{middle, Mode::read}, {top, Mode::read}});
    const Line line = b.built(1);
    const Retention retention(line, 3, nullptr);
    const auto placed = place(line, 3, retention, {1, 0}, nullptr);
    REQUIRE(placed);
    CHECK(check_placement(line, *placed) == "");
}

TEST_CASE("slots have little more memory than their tiles, in few sizes") {
    std::set<uint32_t> sizes;
    for (int64_t bytes = 1; bytes < 100'000'000; bytes += 1 + bytes / 50) {
        const int64_t slot = slot_blocks(bytes) * slot_block;
        CHECK(slot >= bytes);
        CHECK(slot < bytes + slot_block + bytes / 64);
        sizes.insert(slot_blocks(bytes));
    }
    CHECK(sizes.size() < 700);
}

TEST_CASE("slots that share memory are claimed from each other") {
    SlotTable table;
    const uint32_t a = table.number_of(0, 10), b = table.number_of(0, 4), c = table.number_of(6, 4),
                   d = table.number_of(3, 5);
    using Slots = std::vector<uint32_t>;
    CHECK(table.number_of(0, 10) == a);
    CHECK(table.claim(a) == Slots{});
    CHECK(table.claim(a) == Slots{});
    CHECK(table.claim(b) == Slots{a});
    CHECK(table.claim(b) == Slots{});
    CHECK(table.claim(c) == Slots{a});
    CHECK(table.claim(d) == Slots{a, b, c});
    CHECK(table.claim(c) == Slots{d});
    CHECK(table.claim(a) == Slots{b, c, d});
    CHECK(table.claim(c) == Slots{a});
}

TEST_CASE("the checker finds what is wrong with a damaged placement") {
    const Line line = training_step(12);
    const Placement good = cycle(line, 10);
    REQUIRE(check_placement(line, good) == "");
    const auto first = [](Placement& p, Placement::Kind kind, size_t from = 0) {
        while (p.steps[from].kind != kind) ++from;
        return p.steps.begin() + std::ptrdiff_t(from);
    };
    const size_t middle = good.steps.size() / 2;
    const auto home = uint32_t(std::find_if(good.first.begin(), good.first.end(),
                                            [](uint32_t slot) { return slot != no_slot; }) -
                               good.first.begin());
    using Damage = std::function<void(Placement&)>;
    const std::pair<const char*, Damage> damages[] = {
        {"does not hold it", [&](auto& p) { p.steps.erase(first(p, Placement::load)); }},
        {"loses the only value",
         [&](auto& p) { p.steps.erase(first(p, Placement::store, middle)); }},
        {"which is stored", [&](auto& p) { first(p, Placement::store, middle)->index ^= 1; }},
        {"is loaded, but the store does not have its value",
         [&](auto& p) {
             p.steps.insert(p.steps.begin(), {Placement::load, home, p.first[home], 0});
         }},
        {"does not run",
         [&](auto& p) {
             while (p.steps.back().kind != Placement::run) p.steps.pop_back();
             p.steps.pop_back();
         }},
        {"runs before", [&](auto& p) { p.steps.erase(first(p, Placement::run, middle)); }},
        {"runs twice", [&](auto& p) { p.steps.push_back(*first(p, Placement::run)); }},
        {"ends at block 11 of 10", [&](auto& p) { first(p, Placement::load)->slot = 10; }},
        {"two tiles in slot", [&](auto& p) { p.slots[1] = p.slots[0]; }},
        {"loses the only value",
         [&](auto& p) {
             for (uint32_t& slot : p.first)
                 if (slot != no_slot) slot = 0;
         }},
        {"is not in the store at the end", [&](auto& p) { p.last.assign(p.last.size(), no_slot); }},
        {"is not in a slot at the end", [&](auto& p) { p.last[home] ^= 1; }},
    };
    for (const auto& [problem, damage] : damages) {
        Placement damaged = good;
        damage(damaged);
        CAPTURE(problem);
        CHECK_THAT(check_placement(line, damaged), Catch::Contains(problem));
    }
    Placement moved = good;
    moved.first.assign(moved.first.size(), no_slot);
    CHECK_THAT(check_succession(line, good, line, moved),
               Catch::Contains("but begins in the store"));
    moved = good;
    ++moved.first[home];
    CHECK_THAT(check_succession(line, good, line, moved), Catch::Contains("but begins in slot"));
}

TEST_CASE("the moments of a line are known although a task at its end could run at once") {
    constexpr uint32_t chain = 300;
    LineBuilder b;
    const uint32_t tile = b.tile(true), other = b.tile(true);
    for (uint32_t t = 0; t < chain; ++t) b.task(1, {{tile, Mode::read_write}});
    b.task(1, {{other, Mode::read_write}});
    Line line = b.built(2);
    CHECK(line.seconds == chain);
    for (uint32_t t = 0; t < chain; ++t) CHECK(line.begins[t] >= t - 64.0);
    CHECK(line.begins[chain - 1] >= chain - 65.0);
    line.set_times(std::vector<double>(chain + 1, 0), 2);
    CHECK(line.seconds == 0);
}

}  // namespace nn::engine_test
