// Plans that are kept, in memory and in files: the same program gets the same plan without a search
// while nothing on which it depends has changed, and a file from elsewhere does no harm.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "engine/tiers/found_plan.h"
#include "engine/tiers/plan.h"
#include "engine/tiers/search.h"
#include "engine/tiers/search_time.h"
#include "tests/cpp/engine_test.h"
#include "tests/cpp/kept_folder.h"
#include "tests/cpp/made_up_training.h"

namespace nn::engine_test {
namespace {

namespace fs = std::filesystem;

struct Folder : KeptFolder {
    Folder() { use("1"); }
    // As another process begins: only the files remain.
    void use(const char* version) const {
        forget_plans();
        keep_files_in(path, version);
    }
    std::vector<fs::path> files() const {
        return {fs::directory_iterator(path / "plans"), fs::directory_iterator()};
    }
};

struct Case {
    std::unique_ptr<Training> training, same;  // the same program, recorded twice
    std::vector<double> seconds;
    PlanLimits limits;

    Case(uint32_t seed, bool has_loop) {
        std::mt19937 random(seed), again(seed);
        const auto made = [&](std::mt19937& from) {
            return has_loop ? looped_training(from, seed % 2) : flat_training(from, seed % 2);
        };
        training = made(random), same = made(again);
        seconds.assign(training->program.tasks.size(), 1e-4);
        limits.rates = {2, 1e9, 1e-5};
        limits.memory = int64_t(3) << 20;
    }
    // Plans the program -> whether a search was made.
    bool searches(ProgramPlan* out = nullptr) const {
        const size_t before = placement_searches();
        ProgramPlan plan = plan_program(same->program, seconds, limits);
        if (out) *out = std::move(plan);
        return placement_searches() > before;
    }
};

void check_equal(const RunPlan& a, const RunPlan& b) {
    CHECK(a.line.tasks == b.line.tasks);
    CHECK(a.placement.slots == b.placement.slots);
    CHECK(a.placement.first == b.placement.first);
    CHECK(a.placement.last == b.placement.last);
    REQUIRE(a.placement.steps.size() == b.placement.steps.size());
    for (size_t i = 0; i < a.placement.steps.size(); ++i) {
        CHECK(a.placement.steps[i].index == b.placement.steps[i].index);
        CHECK(a.placement.steps[i].due == b.placement.steps[i].due);
    }
}

void check_equal(const ProgramPlan& a, const ProgramPlan& b) {
    CHECK(a.blocks == b.blocks);
    CHECK(a.least_moved == b.least_moved);
    CHECK(a.iterations() == b.iterations());
    check_equal(a.first, b.first), check_equal(a.next, b.next), check_equal(a.last, b.last);
    check_equal(a.iteration, b.iteration), check_equal(a.tail, b.tail);
}

}  // namespace

TEST_CASE("a program that is recorded again gets the same plan without another search") {
    for (uint32_t seed = 0; seed < 12; ++seed) {
        CAPTURE(seed);
        const Folder folder;
        const Case c(seed, seed % 3 > 0);
        const ProgramPlan first = plan_program(c.training->program, c.seconds, c.limits);
        ProgramPlan again;
        CHECK_FALSE(c.searches(&again));
        check_equal(first, again);
        folder.use("1");
        const size_t read = plans_from_folder();
        CHECK_FALSE(c.searches(&again));
        CHECK(plans_from_folder() == read + 1);
        check_equal(first, again);
    }
}

TEST_CASE("a kept plan of several levels is the same, too") {
    const Folder folder;
    Case c(4, false);
    c.limits.below.push_back({int64_t(6) << 20, 0, {1, 5e8, 1e-4}});
    SECTION("if the upper level needs the lower one") {}
    SECTION("if it needs nothing of it") { c.limits.memory = int64_t(1) << 30; }
    SECTION("of three levels") { c.limits.below.push_back({int64_t(6) << 20, 0, {1, 3e8, 1e-4}}); }
    const ProgramPlan first = plan_program(c.training->program, c.seconds, c.limits);
    folder.use("1");
    ProgramPlan again;
    CHECK_FALSE(c.searches(&again));
    check_equal(first, again);
    REQUIRE(again.below.size() == c.limits.below.size());
    for (size_t level = 1; level <= again.below.size(); ++level) {
        check_equal(first.first.level(level), again.first.level(level));
        check_equal(first.next.level(level), again.next.level(level));
        CHECK(first.below[level - 1].least_moved == again.below[level - 1].least_moved);
    }
}

TEST_CASE("a plan is searched again if what it depends on has changed") {
    const Folder folder;
    Case c(1, true);
    REQUIRE(c.searches());
    SECTION("times a little: it is not") {
        for (double& seconds : c.seconds) seconds *= 1.2;
        CHECK_FALSE(c.searches());
    }
    SECTION("times of tasks and transfers alike: it is not") {
        for (double& seconds : c.seconds) seconds *= 3;
        c.limits.rates.link_rate /= 3;
        CHECK_FALSE(c.searches());
    }
    SECTION("times of tasks") {
        for (double& seconds : c.seconds) seconds *= 2;
        CHECK(c.searches());
    }
    SECTION("the disk's rate") {
        c.limits.rates.link_rate /= 2;
        CHECK(c.searches());
    }
    SECTION("memory") {
        c.limits.memory += 1 << 16;
        CHECK(c.searches());
    }
    SECTION("workers") {
        c.limits.rates.workers = 3;
        CHECK(c.searches());
    }
    SECTION("the version") {
        folder.use("2");
        CHECK(c.searches());
    }
    SECTION("the disk is full") {
        c.limits.disk = 1;
        CHECK(c.searches());
    }
    SECTION("the program") {
        add_task(c.same->program, "",
                 {{c.same->persistent[0], Mode::read}, {new_tile(8, false), Mode::write}});
        c.seconds.push_back(1e-4);
        CHECK(c.searches());
    }
    SECTION("the time for the search, if it ended the last one") {
        limit_search(1e-9);
        Case other(3, true);
        REQUIRE(other.searches());
        CHECK_FALSE(other.searches());
        limit_search(100);
        CHECK(other.searches());
        limit_search(1);
        CHECK_FALSE(other.searches());
        limit_search(4);
    }
}

TEST_CASE("a damaged file of a plan counts as missing, and is replaced") {
    std::mt19937 random(1);
    const Folder folder;
    const Case c(2, true);
    REQUIRE(c.searches());
    REQUIRE(folder.files().size() == 1);
    const fs::path path = folder.files()[0];
    std::ifstream file(path, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(file), {}};
    for (int round = 0; round < 50; ++round) {
        std::string damaged = whole;
        if (round % 2)
            damaged.resize(random() % damaged.size());
        else
            damaged[random() % damaged.size()] ^= char(1 << random() % 8);
        std::ofstream(path, std::ios::binary) << damaged;
        folder.use("1");
        CHECK(c.searches());
        folder.use("1");
        CHECK_FALSE(c.searches());
    }
}

TEST_CASE("a plan of another program is not taken for that of a program") {
    std::mt19937 random(8);
    const Case c(2, true);
    const FoundPlan own = found_plan(plan_program(c.training->program, c.seconds, c.limits));
    CHECK_NOTHROW(plan_again(own, c.same->program, c.seconds, c.limits));
    for (uint32_t seed = 5; seed < 25; ++seed) {
        const Case other(seed, seed % 2);
        const FoundPlan found =
            found_plan(plan_program(other.training->program, other.seconds, other.limits));
        CHECK_THROWS_AS(plan_again(found, c.same->program, c.seconds, c.limits), Error);
    }
    for (int round = 0; round < 200; ++round) {  // numbers that are wrong
        FoundPlan wrong = own;
        Placement& placement = wrong.placements[round % 2 ? 3 : 4];
        Placement::Step& step = placement.steps[random() % placement.steps.size()];
        (random() % 2 ? step.index : step.slot) = uint32_t(random()) >> random() % 32;
        try {
            plan_again(wrong, c.same->program, c.seconds, c.limits);
        } catch (const Error&) {
        }
    }
}

TEST_CASE("a kept plan that gives a slot to a tile that is not placed is replaced") {
    for (int round = 0; round < 4; ++round) {
        const Folder folder;
        const bool has_loop = round % 2, is_before = round / 2;
        const Case c(2, has_loop);
        const Program& program = c.training->program;
        const ProgramPlan plan = plan_program(program, c.seconds, c.limits);
        FoundPlan wrong = found_plan(plan);
        uint32_t small = 0;
        while (plan.lines->is_placed(small)) ++small;
        if (is_before)
            wrong.placements[0].first[small] = 0;
        else
            wrong.placements[has_loop ? 4 : 0].last[small] = 0;
        CHECK_THROWS_AS(plan_again(wrong, c.same->program, c.seconds, c.limits), Error);
        keep_plan(plan_key(program, c.seconds, c.limits), link_bytes(program, c.seconds, c.limits),
                  {}, wrong);
        folder.use("1");
        CHECK(c.searches());
        CHECK_FALSE(c.searches());
    }
}

TEST_CASE("the files of the plans that were not used for the longest time are removed") {
    const Folder folder;
    Case c(0, false);
    for (int i = 0; i < 70; ++i) {
        c.limits.memory += 1 << 12;
        c.searches();
    }
    CHECK(folder.files().size() == 64);
    folder.use("1");
    CHECK_FALSE(c.searches());
    c.limits.memory -= 69 << 12;
    CHECK(c.searches());
}

}  // namespace nn::engine_test
