// Tasks: the order of accesses to a tile, valid and invalid tasks, the limit of eager submission,
// and the state after errors and interrupts.
#include <starpu.h>

#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

void fail_with_number(const KernelCall& call) {
    call.fail("%g is a bad number", call.get<note_params>().value);
}
const TestKernel fail_kernel("test_fail", "y:rw", "note_params", sizeof(note_params),
                             fail_with_number);
const TestKernel throw_kernel("test_throw", "y:rw", "empty_params", sizeof(empty_params),
                              [](const KernelCall&) { throw Error("thrown by a kernel"); });

// Overwrites a tile without touching its memory, after `after`.
const TestKernel claim_kernel("test_claim", "y:w after:r?", "empty_params", sizeof(empty_params),
                              [](const KernelCall&) {});

constexpr int64_t large = int64_t(16) << 20;  // bytes of a tile
constexpr int most_in_flight = 256 / 16 + 1;  // the last one starts at the limit
Tensor large_tensor() { return Tensor(Grid::whole({large / 8}), Dtype::i64); }

void emit_claim(const Tensor& y, const Tensor& after = {}) {
    task("test_claim", Dtype::i64)
        .use({writes(y.tile(0)), after ? reads(after.tile(0)) : absent()})
        .params(empty_params{})
        .emit();
}

void emit_mix(const Tensor& y, const Tensor& a, uint64_t value, int priority = 0) {
    task("test_mix", Dtype::i64)
        .use({updates(y.tile(0)), a ? reads(a.tile(0)) : absent()})
        .params(mix_params{value})
        .priority(priority)
        .emit();
}

// Reaches the limit of eager tasks with tasks that wait for `gate`.
void fill_room(const Tensor& gate) {
    for (int i = 0; i < most_in_flight; ++i) emit_claim(large_tensor(), gate);
}

}  // namespace

TEST_CASE("tasks on random tiles give the results of sequential execution") {
    const char* const scheduler = GENERATE("prio", "eager", "ws");
    const Session session(2, scheduler);
    INFO(scheduler);
    Random random(1);
    std::vector<Tensor> tiles;
    std::vector<uint64_t> expected;
    for (int i = 0; i < 6; ++i) {
        tiles.push_back(scalar_of(i));
        expected.push_back(uint64_t(i));
    }
    for (int i = 0; i < 3000; ++i) {
        const size_t y = size_t(random.integer(0, 5)), a = size_t(random.integer(0, 6));
        const bool given = a < 6;  // a == y: one tile for both operands
        emit_mix(tiles[y], given ? tiles[a] : Tensor(), uint64_t(i), int(random.integer(-9, 9)));
        expected[y] = expected[y] * 31 + (given ? expected[a] : 0) + uint64_t(i);
    }
    for (size_t i = 0; i < 6; ++i) CHECK(uint64_t(values_of(tiles[i])[0]) == expected[i]);
}

TEST_CASE("a reader sees the value from before a later write, however late the reader runs") {
    const Session session;
    const Tensor x = scalar_of(7), y = scalar_of(0);
    {
        const Gate closed;
        emit_gate(y.tile(0));
        emit_mix(y, x, 0);
        emit_mix(x, {}, 1);
        emit_mix(y, x, 0);
    }
    CHECK(values_of(y)[0] == 7 * 31 + (7 * 31 + 1));
}

TEST_CASE("a tensor has a value as soon as its first writer is submitted") {
    const Session session;
    const Tensor gate = scalar_of(0), y(Grid(), Dtype::i64);
    const Gate closed;
    emit_gate(gate.tile(0));
    CHECK_FALSE(y.tile(0)->has_value());
    emit_claim(y, gate);
    CHECK(y.tile(0)->has_value());
}

TEST_CASE("an invalid task is refused with the reason, and the next one runs") {
    const Session session;
    const Tensor x = scalar_of(1), empty(Grid(), Dtype::i64);
    CHECK(error_of([] { task("no_such_kernel", Dtype::f32); }) ==
          "unknown kernel 'no_such_kernel'");
    CHECK_THAT(error_of([&] { task("test_mix", Dtype::i64).params(int32_t(1)); }),
               contains("mix_params of 8 bytes, not 4"));
    CHECK_THAT(error_of([&] {
                   TaskBuilder builder = task("test_mix", Dtype::i64);
                   for (int i = 0; i <= max_operands; ++i) builder.use(absent());
               }),
               contains("more than 15 operands"));
    CHECK_THAT(error_of([&] { emit_mix(empty, x, 0); }), contains("never given a value"));
    CHECK_THAT(error_of([&] { emit_mix(x, empty, 0); }), contains("never given a value"));
    for (const auto& [a, b] : {std::pair{writes(empty.tile(0)), reads(empty.tile(0))},
                               std::pair{reads(empty.tile(0)), writes(empty.tile(0))}})
        CHECK_THAT(error_of([&] {
                       task("test_mix", Dtype::i64).use({a, b}).params(mix_params{}).emit();
                   }),
                   contains("never given a value"));  // the same tile, read and written
    CHECK_FALSE(empty.tile(0)->has_value());
    emit_mix(x, {}, 3);
    CHECK(values_of(x)[0] == 34);
}

// If the bytes of a refused task still counted as in flight, the last task would wait for ever.
TEST_CASE("tasks that no worker can run are refused, without a value or bytes in flight") {
    const Session session;
    const Tensor y = large_tensor(), x = scalar_of(1);
    for (int i = 0; i < 2 * most_in_flight; ++i)
        REQUIRE_THAT(error_of([&] {
                         task("test_claim", Dtype::i64)
                             .use({writes(y.tile(0)), absent()})
                             .params(empty_params{})
                             .where(Where::gpu)
                             .emit();
                     }),
                     contains("no worker can run kernel test_claim"));
    CHECK_FALSE(y.tile(0)->has_value());
    emit_claim(y);
    emit_mix(x, {}, 0);
    CHECK(values_of(x)[0] == 31);
}

TEST_CASE("the error of a kernel is reported once with its tile, and fails only dependent tasks") {
    const Session session;
    const Tensor x = scalar_of(1), y = scalar_of(1);
    for (double value : {1.5, 2.5})
        task("test_fail", Dtype::i64)
            .use(updates(x.tile(0)))
            .params(note_params{value})
            .emit(4, {3, 5});
    CHECK(error_of(wait_all) ==
          "task: 1.5 is a bad number (kernel test_fail, i64, tile 5 of shape (3,5))");
    CHECK_NOTHROW(check_pending());
    emit_mix(y, {}, 2);
    CHECK(values_of(y)[0] == 33);
    CHECK_THAT(error_of([&] { emit_mix(y, x, 2); }), contains("was not computed"));
    CHECK_THAT(error_of([&] { values_of(x); }), contains("was not computed"));
    const Tensor z = scalar_of(1);
    task("test_throw", Dtype::i64).use(updates(z.tile(0))).params(empty_params{}).emit();
    CHECK(error_of(wait_all) == "task: thrown by a kernel (kernel test_throw, i64)");
}

TEST_CASE("an op that fails half-way leaves the engine and its inputs usable") {
    const Session session;
    const Tensor x = op("full", {}, {list({3, 4}), number(2)});
    const int64_t before = admitted_bytes();
    CHECK_THAT(error_of([&] { op("reshape", {x}, {list({5, 5})}); }), contains("12 elements"));
    CHECK_THAT(error_of([&] { op("linear", {x, x, x}); }), contains("linear: "));
    CHECK_THAT(error_of([&] { op("gather", {x, x}); }), contains("i32 or i64"));
    CHECK(admitted_bytes() == before);
    CHECK(std::string(current_op()) == "task");
    const Tensor sum = op("to", {op("sum", {x})}, {text("i64")});
    CHECK(values_of(sum)[0] == 24);
}

TEST_CASE("eager tasks in flight write at most 256 MB of new values") {
    const Session session;
    const Tensor gate = scalar_of(0);
    std::atomic<int> submitted{0}, when_opened{0};
    Gate closed;
    emit_gate(gate.tile(0));
    reset_peak();
    std::thread opener([&] {
        for (int before = -1; before != submitted;) {  // until submission stops
            before = submitted;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        when_opened = submitted.load();
        Gate::open();
    });
    for (int i = 0; i < 3 * most_in_flight; ++i, ++submitted) emit_claim(large_tensor(), gate);
    opener.join();
    wait_all();
    CHECK(when_opened <= most_in_flight);
    CHECK(arena_info().peak <= (most_in_flight + 1) * large);
}

TEST_CASE("tasks that change values in place do not count towards the limit") {
    const Session session;
    const Tensor gate = scalar_of(0), x = large_tensor();
    emit_claim(x);
    wait_all();
    Gate closed;
    emit_gate(gate.tile(0));
    std::thread opener([] {  // needed only if the test fails
        for (int i = 0; i < 500 && Gate::closed; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        Gate::open();
    });
    for (int i = 0; i < 3 * most_in_flight; ++i)
        task("test_mix", Dtype::i64)
            .use({updates(x.tile(0)), reads(gate.tile(0))})
            .params(mix_params{0})
            .emit();
    CHECK(Gate::closed);
    Gate::open();
    opener.join();
}

TEST_CASE("an op that is interrupted before its tasks are submitted leaves no value") {
    const Session session;
    const Tensor gate = scalar_of(0), x = scalar_of(1), y = large_tensor();
    {
        const Gate closed;
        emit_gate(gate.tile(0));
        fill_room(gate);
        request_interrupt();
        CHECK_THROWS_AS(emit_claim(y), Interrupted);
        CHECK_THROWS_AS(emit_mix(x, {}, 0), Interrupted);
        CHECK_FALSE(y.tile(0)->has_value());
        CHECK(clear_interrupt());
    }
    CHECK(values_of(x)[0] == 1);
    CHECK_THAT(error_of([&] { values_of(y); }), contains("never given a value"));
    emit_claim(y);
    emit_mix(x, {}, 0);
    CHECK(values_of(x)[0] == 31);
}

TEST_CASE("an interrupted wait leaves values unchanged and the tile available") {
    const Session session;
    const Tensor x = scalar_of(5);
    const Integers nine{9};
    for (bool write : {false, true}) {
        {
            const Gate closed;
            emit_gate(x.tile(0));
            REQUIRE(Gate::reached());
            request_interrupt();
            if (write)
                CHECK_THROWS_AS(write_tensor(x, nine.data()), Interrupted);
            else
                CHECK_THROWS_AS(values_of(x), Interrupted);
            CHECK_THROWS_AS(wait_all(), Interrupted);
            clear_interrupt();
        }
        if (!write) CHECK(values_of(x)[0] == 5);
    }
    write_tensor(x, nine.data());
    emit_mix(x, {}, 0);
    CHECK(values_of(x)[0] == 9 * 31);
}

TEST_CASE("a tensor may be destroyed while tasks on it are in flight") {
    const Session session;
    const Tensor y = scalar_of(0);
    const int64_t before = admitted_bytes();
    {
        const Gate closed;
        Tensor x = scalar_of(3);
        emit_gate(x.tile(0));
        emit_mix(y, x, 0);
        x = Tensor();
        CHECK(admitted_bytes() == before);
    }
    CHECK(values_of(y)[0] == 3);
}

}  // namespace nn::engine_test
