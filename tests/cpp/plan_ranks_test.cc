// Plans of a step on several ranks, in one process: the simulation of their links, and the parts of
// a program for described ranks.
#include "engine/graph/recording.h"
#include "engine/machine/description.h"
#include "engine/plan/plan.h"
#include "engine/plan/rank_link.h"
#include "engine/schedule/pipeline.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

struct Described {
    explicit Described(const char* text) { describe_machine(text); }
    ~Described() { describe_machine(""); }
};

// Tasks of two ranks, from 0, and transfers, which resource 2 + r sends from rank r.
struct Maker {
    SimulatedStep step;
    Maker() { step.ranks = 2; }
    uint32_t tile(int64_t bytes, uint32_t rank) {
        step.blocks.push_back({bytes, other_kind, false, rank});
        return step.accesses.tiles++;
    }
    void task(uint32_t resource, double seconds, const std::vector<uint32_t>& reads,
              const std::vector<uint32_t>& writes) {
        for (uint32_t t : reads) step.accesses.add(t, Mode::read);
        for (uint32_t t : writes) step.accesses.add(t, Mode::write);
        step.accesses.end_task();
        step.seconds.push_back(seconds);
        step.priorities.push_back(0);
        step.resources.push_back(resource);
    }
};

// A step of three shards that changes a weight and its moment of 1 MB each.
std::shared_ptr<Replay> planned_step() {
    return compile({}, [](const std::vector<Tensor>&) {
        const Tensor weight = op("full", {}, {list({500, 500}), number(1)});
        const Tensor moment = op("full", {}, {list({500, 500}), number(0)});
        weight.tile(0)->kind = weights, moment.tile(0)->kind = optimizer_state;
        begin_planned_step({weight, moment});
        std::vector<Tensor> gradients;
        for (int shard = 0; shard < 3; ++shard) {
            set_shard(shard, 3);
            gradients.push_back(op("neg", {weight}));
        }
        set_shard(-1, 3);
        const Tensor sum = op("add", {op("add", {gradients[0], gradients[1]}), gradients[2]});
        op("add_", {moment, sum});
        op("add_", {weight, moment});
        return std::vector<Tensor>{};
    });
}

int64_t transferred(const Program& part, Task::Transfer direction) {
    int64_t bytes = 0;
    for (const Task& task : part.tasks)
        if (task.transfer == direction) bytes += int64_t(task.tiles[0]->bytes);
    return bytes;
}

}  // namespace

TEST_CASE("ranks compute side by side, and the link of each sends one tile at a time") {
    Maker m;
    const uint32_t a = m.tile(10, 0), b = m.tile(10, 1), c = m.tile(20, 1), d = m.tile(5, 1);
    m.task(0, 2, {}, {a});
    m.task(2, 1, {a}, {b});  // from 2 to 3
    m.task(2, 1, {a}, {c});  // from 3 to 4
    m.task(1, 3, {b}, {d});  // from 3 to 6, while c arrives
    m.task(1, 1, {c, d}, {});
    const auto results = Simulation(m.step, 1).run(1);
    REQUIRE(results.size() == 2);
    for (const SimulationResult& result : results) CHECK(result.seconds == 7);
    CHECK(results[0].busy == 2);
    CHECK(results[1].busy == 4);
    CHECK(results[0].sending == 2);
    CHECK(results[1].sending == 0);
    CHECK(results[0].peak == 10);
    CHECK(results[1].peak == 35);
}

TEST_CASE("a plan for described ranks has the part of each, and no rank need run") {
    const Session session;
    const Described three("ranks=3 cpus=2 ram=1GB gflops=10 rank_link=100MB/s");
    const auto replay = planned_step();
    const Program& mine = replay->program();
    REQUIRE(mine.whole);
    const auto others = parts_of_others(mine);
    REQUIRE(others.size() == 2);
    const Parts parts{&mine, others[0].get(), others[1].get()};
    int64_t sent = 0, received = 0;
    for (const Program* part : parts) {
        sent += transferred(*part, Task::Transfer::send);
        received += transferred(*part, Task::Transfer::receive);
        size_t shards = 0;
        for (const Task& task : part->tasks) shards += task.shard >= 0;
        CHECK(shards == 1);
    }
    // Two gradients to a sum, the moment to the weight's owner, and the weight to two ranks.
    CHECK(sent == 5'000'000);
    CHECK(received == sent);
    const auto results = plan(parts, Times::nominal, 1);
    REQUIRE(results.size() == 3);
    int64_t state = 0, with_moment = 0;
    for (const SimulationResult& result : results) {
        state += result.lasting;
        with_moment += result.by_kind[optimizer_state] > 0;
        CHECK(result.seconds > 0.02);  // a gradient and the weight at 100 MB/s
        CHECK(result.peak > result.lasting);
    }
    CHECK(with_moment == 1);
    CHECK(state == 4 * int64_t(arena_bytes(1'000'000)));
    CHECK(!rank_link_is_assumed());
}

TEST_CASE("a plan without a batch in shards is the same for any number of ranks") {
    const Session session;
    const Described two("ranks=2 cpus=2 ram=1GB");
    const auto replay = compile({}, [](const std::vector<Tensor>&) {
        const Tensor x = op("full", {}, {list({1000}), number(1)});
        begin_planned_step({x});
        return std::vector<Tensor>{op("neg", {x})};
    });
    CHECK(!replay->program().whole);
    CHECK(parts_of_others(replay->program()).empty());
    CHECK(rank_link_is_assumed());
}

}  // namespace nn::engine_test
