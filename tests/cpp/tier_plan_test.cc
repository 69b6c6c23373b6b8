// Orders and plans of made-up training programs: whatever the order, every run leaves the values of
// the recorded order, also if updates run with the next run's first tasks.
#include <random>
#include <unordered_map>

#include "engine/tiers/plan.h"
#include "engine/tiers/search.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

constexpr uint32_t recording = 77;

// Creates tiles of a recording, or persistent ones.
TilePtr new_tile(size_t bytes, bool persists) {
    const uint32_t before = recording_number();
    set_recording_number(persists ? 0 : recording);
    TilePtr out = std::make_shared<Tile>(bytes);
    set_recording_number(before);
    return out;
}

using Uses = std::vector<std::pair<TilePtr, Mode>>;

void add_task(Program& program, const char* layer, const Uses& uses) {
    Task task{};
    task.arg.op = "test", task.arg.layer = layer;
    for (const auto& [tile, mode] : uses) task.add_tile(tile, mode);
    program.tasks.push_back(std::move(task));
}

struct Training {
    Program program{recording};
    std::vector<TilePtr> persistent;
};

// Layers with a weight and a moment; microbatches; updates after all gradients, with their norm or
// without. Sizes vary, and so do those of slots.
std::unique_ptr<Training> training(std::mt19937& random, bool clips) {
    static const char* const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const auto below = [&](uint32_t n) { return uint32_t(random() % n); };
    auto out = std::make_unique<Training>();
    Program& p = out->program;
    const uint32_t layers = 2 + below(6), microbatches = 1 + below(3);
    std::vector<TilePtr> weight, moment, gradient;
    for (uint32_t i = 0; i < layers; ++i) {
        const size_t bytes = (4 + below(3)) << 16;
        weight.push_back(new_tile(bytes, true));
        moment.push_back(new_tile(bytes, true));
        gradient.push_back(new_tile(bytes, false));
        out->persistent.insert(out->persistent.end(), {weight.back(), moment.back()});
    }
    const TilePtr norm = new_tile(8, false), loss = new_tile(8, false);
    for (uint32_t m = 0; m < microbatches; ++m) {
        if (microbatches > 1) p.microbatches.push_back({p.tasks.size(), 1});
        std::vector<TilePtr> result;
        for (uint32_t i = 0; i < layers; ++i) {
            result.push_back(new_tile(5 << 16, false));
            Uses uses{{weight[i], Mode::read}, {result[i], Mode::write}};
            if (i) uses.push_back({result[i - 1], Mode::read});
            add_task(p, names[i], uses);
        }
        add_task(p, "", {{result.back(), Mode::read}, {loss, m ? Mode::read_write : Mode::write}});
        for (uint32_t i = layers; i-- > 0;)
            add_task(p, names[i],
                     {{weight[i], Mode::read},
                      {result[i], Mode::read},
                      {gradient[i], m ? Mode::read_write : Mode::write}});
    }
    for (uint32_t i = 0; i < layers; ++i)
        add_task(p, "", {{gradient[i], Mode::read}, {norm, i ? Mode::read_write : Mode::write}});
    for (uint32_t i = 0; i < layers; ++i) {
        Uses uses{{weight[i], Mode::read_write},
                  {moment[i], Mode::read_write},
                  {gradient[i], Mode::read}};
        if (clips) uses.push_back({norm, Mode::read});
        add_task(p, names[i], uses);
    }
    return out;
}

// The values of tiles, as numbers that depend on everything that computed them.
class Values {
public:
    void run(const Program& program, uint32_t number) {
        const Task& task = program.tasks[number];
        uint64_t value = number + 1;
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::write) value = mixed(value, of(task.tiles[i]));
        for (int i = 0; i < task.handles; ++i)
            if (task.writes(i)) values_[task.tiles[i].get()] = mixed(value, uint64_t(i));
    }
    uint64_t of(const TilePtr& tile) { return values_[tile.get()]; }

private:
    static uint64_t mixed(uint64_t a, uint64_t b) {
        return (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xFF51AFD7ED558CCDu;
    }
    std::unordered_map<const Tile*, uint64_t> values_;
};

}  // namespace

TEST_CASE("every order of a plan computes the values of the recorded order") {
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        const bool clips = random() % 2;
        const auto t = training(random, clips);
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
                expected.run(t->program, task);
            for (uint32_t task : run ? merge_deferred(order, accesses) : order.body)
                found.run(t->program, task);
        }
        for (uint32_t task : order.deferred) found.run(t->program, task);
        CAPTURE(round, by_layer, late, clips);
        for (const TilePtr& tile : t->persistent) REQUIRE(expected.of(tile) == found.of(tile));
    }
}

TEST_CASE("a layer serves all microbatches in a row, and gradients are reduced at once") {
    std::mt19937 random(11);
    auto t = training(random, false);
    while (t->program.microbatches.size() < 2) t = training(random, false);
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

TEST_CASE("plans of training programs are placed, checked and predicted") {
    std::mt19937 random(3);
    for (int round = 0; round < 60; ++round) {
        const bool clips = random() % 2;
        const auto t = training(random, clips);
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
            const Prediction time = predict(plan, seconds, limits.rates);
            CHECK(time.seconds >= time.computing * 0.95);
            CHECK(time.seconds >= time.disk_busy * 0.95);
            CHECK(time.seconds <= before * 1.3);
            before = time.seconds;
            if (ram > least * 10) CHECK(time.disk_busy == 0);
        }
    }
}

TEST_CASE("a program that is recorded again gets the same plan without another search") {
    std::mt19937 random(9);
    for (int round = 0; round < 20; ++round) {
        const bool clips = random() % 2;
        std::mt19937 again = random;
        const auto t = training(random, clips), same = training(again, clips);
        std::vector<double> seconds(t->program.tasks.size(), 1e-3);
        PlanLimits limits;
        limits.rates = {2, 1e9, 1e-5};
        limits.memory = int64_t(1) << 23;
        const ProgramPlan first = plan_program(t->program, seconds, limits);
        const size_t searches = placement_searches();
        const ProgramPlan second = plan_program(same->program, seconds, limits);
        CHECK(placement_searches() == searches);
        CHECK(second.steady().line.tasks == first.steady().line.tasks);
        CHECK(second.steady().placement.slots == first.steady().placement.slots);
        CHECK(second.steady().placement.steps.size() == first.steady().placement.steps.size());
        CHECK(second.least_moved == first.least_moved);
        seconds[random() % seconds.size()] *= 1.5;
        plan_program(same->program, seconds, limits);
        CHECK(placement_searches() == searches + 1);
        limits.memory += 1 << 16;
        plan_program(same->program, seconds, limits);
        CHECK(placement_searches() == searches + 2);
    }
}

}  // namespace nn::engine_test
