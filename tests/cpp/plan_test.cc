// The simulation behind plans: graphs made by hand with a known schedule, for one and two workers;
// and the graph of a recorded program.
#include "engine/plan/plan.h"

#include <chrono>
#include <fstream>

#include "engine/base/error.h"
#include "engine/base/kept_numbers.h"
#include "engine/machine/machine.h"
#include "engine/workers/rates.h"
#include "tests/cpp/engine_test.h"
#include "tests/cpp/kept_folder.h"

namespace nn::engine_test {
namespace {

// Builds a graph. Tasks take whole seconds; tiles are numbered in the order they are made.
struct Maker {
    SimulatedStep step;
    uint32_t tile(int64_t bytes, TileKind kind = other_kind, bool persists = false) {
        step.blocks.push_back({bytes, kind, persists});
        return step.accesses.tiles++;
    }
    void task(double seconds, std::vector<uint32_t> reads, std::vector<uint32_t> writes,
              int priority = 0) {
        for (uint32_t t : reads) step.accesses.add(t, Mode::read);
        for (uint32_t t : writes) step.accesses.add(t, Mode::write);
        step.accesses.end_task();
        step.seconds.push_back(seconds);
        step.priorities.push_back(priority);
    }
    SimulationResult run(int workers, int replays = 1, double submission = 0) const {
        return Simulation(step, replays).run(workers, submission).front();
    }
};

double seconds_of(const Maker& m, int workers) { return m.run(workers).seconds; }

}  // namespace

TEST_CASE("a chain takes the sum of its tasks for any number of workers") {
    Maker m;
    const uint32_t a = m.tile(1), b = m.tile(1), c = m.tile(1);
    m.task(1, {}, {a});
    m.task(2, {a}, {b});
    m.task(3, {b}, {c});
    CHECK(seconds_of(m, 1) == 6);
    CHECK(seconds_of(m, 2) == 6);
    CHECK(m.run(2).busy == 6);
}

TEST_CASE("independent tasks run on all workers, the highest priority first") {
    Maker m;
    for (int priority : {1, 2, 3}) m.task(priority, {}, {m.tile(1)}, priority);
    CHECK(seconds_of(m, 1) == 6);
    CHECK(seconds_of(m, 2) == 3);  // 3 and 2 in parallel, then 1
    Maker other;
    for (int priority : {3, 2, 1}) other.task(4 - priority, {}, {other.tile(1)}, priority);
    CHECK(seconds_of(other, 2) == 4);  // 1 and 2 in parallel, then 3 after 1
}

TEST_CASE("a fork and a join wait for the longest branch") {
    Maker m;
    const uint32_t a = m.tile(1), b = m.tile(1), c = m.tile(1), d = m.tile(1);
    m.task(1, {}, {a});
    m.task(5, {a}, {b});
    m.task(2, {a}, {c});
    m.task(1, {b, c}, {d});
    CHECK(seconds_of(m, 1) == 9);
    CHECK(seconds_of(m, 2) == 7);
}

TEST_CASE("a tile takes memory from the start of its first task to the end of its last") {
    Maker m;
    const uint32_t weight = m.tile(100, weights, true);
    const uint32_t a = m.tile(10, activations), b = m.tile(20), c = m.tile(40, gradients);
    m.task(1, {weight}, {a});
    m.task(1, {a}, {b});
    m.task(1, {b}, {c});
    const SimulationResult r = m.run(1);
    CHECK(r.lasting == 100);
    CHECK(r.peak == 160);  // a is freed before c is allocated
    CHECK(r.by_kind[weights] == 100);
    CHECK(r.by_kind[activations] == 0);
    CHECK(r.by_kind[gradients] == 40);
    CHECK(r.by_kind[other_kind] == 20);
}

TEST_CASE("a tile takes no memory between two of its lives") {
    Maker m;
    const uint32_t a = m.tile(10), b = m.tile(10);
    int priority = 8;
    for (int i = 0; i < 2; ++i)
        for (const uint32_t tile : {a, b}) {
            m.task(1, {}, {tile}, --priority);
            m.task(1, {tile}, {}, --priority);
        }
    CHECK(m.run(1).peak == 20);
    m.step.lives = {0, 0, 1, 1, 2, 2, 3, 3};  // by access: two of each tile
    CHECK(m.run(1).peak == 10);
}

TEST_CASE("tasks that run in parallel take memory together") {
    Maker m;
    for (int i = 0; i < 4; ++i) m.task(1, {}, {m.tile(10)});
    CHECK(m.run(1).peak == 10);
    CHECK(m.run(2).peak == 20);
    CHECK(m.run(8).peak == 40);
}

TEST_CASE("a later step waits for the tiles that an earlier one still uses") {
    Maker m;
    const uint32_t a = m.tile(10), b = m.tile(5);
    m.task(1, {}, {a});
    m.task(3, {a}, {b});
    for (int steps : {1, 2, 3, 5}) {
        const SimulationResult r = m.run(2, steps);
        CHECK(r.seconds == 4);
        CHECK(r.peak == 15);
    }
}

TEST_CASE("tasks wait for their submission, and an empty graph takes no time") {
    Maker m;
    for (int i = 0; i < 4; ++i) m.task(0.25, {}, {m.tile(1)});
    CHECK(m.run(4, 1, 1).seconds == 3.25);
    CHECK(m.run(4).seconds == 0.25);
    const SimulationResult none = Maker().run(2);
    CHECK(none.seconds == 0);
    CHECK(none.peak == 0);
}

TEST_CASE(
    "a plan covers what follows the mark of the step, with tiles as large as the arena's blocks") {
    const Session session;
    const auto program = compile({}, [&](const std::vector<Tensor>&) {
        const Tensor weight = op("full", {}, {list({1000}), number(0)});
        for (int64_t i = 0; i < weight.tiles(); ++i) weight.tile(i)->kind = weights;
        begin_planned_step({weight});
        return std::vector<Tensor>{op("neg", {op("neg", {weight})})};
    });
    const SimulationResult r = plan({&program->program()}, Times::nominal).front();
    const int64_t one = int64_t(arena_bytes(4000));
    CHECK(program->program().tasks.size() == 2);
    CHECK(program->program().info.planned_bytes == one);
    CHECK(one == 4032);
    CHECK(r.lasting == 2 * one);  // the weight and the result
    CHECK(r.peak == 3 * one);
    CHECK(r.by_kind[weights] == one);
    CHECK(arena_info().in_use == 0);
}

TEST_CASE("tasks of an earlier microbatch come first, and microbatches wait for earlier ones") {
    const Session session(2);
    for (const int tiles : {1, 2}) {  // with one tile two workers need two microbatches
        const Tensor x = op("full", {}, {list({1000}), number(1)});
        const auto program = compile({}, [&](const std::vector<Tensor>&) {
            std::vector<Tensor> sums;
            for (int i = 0; i < 4; ++i) {
                begin_microbatch(tiles);
                sums.push_back(op("sum", {op("neg", {op("neg", {x})})}));
            }
            return sums;
        });
        const std::vector<Task>& tasks = program->program().tasks;
        REQUIRE(tasks.size() == 12);
        for (size_t t = 1; t < tasks.size(); ++t) CHECK(tasks[t].priority < tasks[t - 1].priority);
        const int64_t one = int64_t(arena_bytes(4000)), scalars = 9 * 64;
        const SimulationResult r =
            Simulation(simulated_step({&program->program()}, TaskTimes()), 1).run(2).front();
        CHECK(r.peak >= one * (1 + 4 / tiles));
        CHECK(r.peak <= one * (1 + 4 / tiles) + scalars);
        CHECK(program->run({}).size() == 4);
    }
}

TEST_CASE("more iterations of a loop take no more memory") {
    const Session session;
    const auto program = compile({}, [&](const std::vector<Tensor>&) {
        const Tensor x = op("full", {}, {list({1000}), number(1)});
        begin_planned_step({x});
        begin_microbatch(1);
        const Tensor sum = op("neg", {x});
        begin_loop(8);
        for (int body = 0; body < 2; ++body) {
            begin_body();
            begin_microbatch(1);
            const Tensor first = op("neg", {x});
            op("add_", {sum, op("add", {op("neg", {op("neg", {first})}), first})});
        }
        CHECK(end_loop(true) == 8);
        return std::vector<Tensor>{sum};
    });
    REQUIRE(program->program().loops.size() == 1);
    const auto peak = [&](uint32_t iterations) {
        return Simulation(simulated_step({&program->program()}, {}, iterations), 1)
            .run(1)
            .front()
            .peak;
    };
    CHECK(peak(3) == peak(1));
    CHECK(peak(1) <= 5 * int64_t(arena_bytes(4000)) + 2 * 64);  // with the gates
}

TEST_CASE("kernels are timed on zeros, and larger tasks are extrapolated from measured ones") {
    const Session session;
    const auto product = [](int64_t n) {
        return compile({}, [&](const std::vector<Tensor>&) {
            const Tensor a = op("full", {}, {list({n, n}), number(0)});
            begin_planned_step({a});
            return std::vector<Tensor>{op("matmul", {a, a})};
        });
    };
    const auto small = product(256), large = product(16384);
    const Task& small_task = small->program().tasks.back();
    TaskTimes times;
    const double nominal = times.seconds(small_task);
    CHECK(nominal == Approx(nominal_seconds(small_task.arg)));
    times.measure({small_task, large->program().tasks.back()});
    CHECK(times.seconds(small_task) > 1e-5);
    CHECK(times.seconds(small_task) != nominal);
    CHECK(times.seconds(large->program().tasks.back()) > 1000 * times.seconds(small_task));
}

TEST_CASE("numbers are kept with their names for those who ask under the same conditions") {
    const KeptFolder folder;
    KeptNumbers numbers("times", "2 workers");
    CHECK_FALSE(numbers.find("a"));
    numbers.keep("a", 0.1), numbers.keep("name of several words", -1e-300);
    CHECK_FALSE(KeptNumbers("times", "2 workers").find("a"));
    numbers.save();
    const KeptNumbers again("times", "2 workers");
    CHECK(again.find("a") == 0.1);
    CHECK(again.find("name of several words") == -1e-300);
    CHECK_FALSE(KeptNumbers("times", "3 workers").find("a"));
    CHECK_FALSE(KeptNumbers("disks", "2 workers").find("a"));
    SECTION("of this version of the program") {
        keep_files_in(folder.path, "2");
        CHECK_FALSE(KeptNumbers("times", "2 workers").find("a"));
    }
    SECTION("in a file that nobody has changed") {
        for (const auto& file : std::filesystem::directory_iterator(folder.path))
            std::ofstream(file.path(), std::ios::app) << "1 1e9 b\n";
        CHECK_FALSE(KeptNumbers("times", "2 workers").find("a"));
    }
    SECTION("for a day or another time, and not from the future") {
        using namespace std::chrono;
        const double now = duration<double>(system_clock::now().time_since_epoch()).count();
        const std::filesystem::path path = *std::filesystem::directory_iterator(folder.path);
        const auto rewrite = [&](double measured) {
            write_kept(path, "times 1, 2 workers", format("0.5 %.17g a\n", measured));
            return KeptNumbers("times", "2 workers").find("a");
        };
        CHECK(rewrite(now - 86000) == 0.5);
        CHECK_FALSE(KeptNumbers("times", "2 workers", 23).find("a"));
        CHECK_FALSE(rewrite(now - 86800));
        CHECK_FALSE(rewrite(now + 600));
    }
}

TEST_CASE("rates are unknown if one measured call fails") {
    const auto run = [](int failing) {
        int calls = 0;
        const auto time = [&](const BenchmarkCall&) { return ++calls == failing ? -1.0 : 1e-3; };
        return measured_rates(time, 64, 1 << 20, false);
    };
    CHECK(run(0).known());
    for (int failing = 1; failing <= 4; ++failing) {
        const Rates rates = run(failing);
        CHECK_FALSE(rates.known());
        CHECK(rates.f32 == Rates{}.f32);
    }
}

}  // namespace nn::engine_test
