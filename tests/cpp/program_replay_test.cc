// Running a program: results equal to eager execution in every bit, scalars and randomness that
// change from run to run, errors that leave it usable, and runs in flight.
#include "engine/graph/sink.h"
#include "engine/runtime/submit.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

using Tensors = std::vector<Tensor>;

// A random function of two arguments and two persistent tensors: tasks that mix temporary and
// persistent tiles. The seed alone determines the tasks.
Tensors random_function(uint64_t seed, const Tensors& in, const Tensors& persistent) {
    Random random(seed);
    Tensors all = in;
    all.insert(all.end(), persistent.begin(), persistent.end());
    const size_t fixed = all.size();
    for (int i = 0; i < 60; ++i) {
        const size_t a = size_t(random.integer(0, int64_t(all.size()) - 1));
        const size_t b = size_t(random.integer(0, int64_t(all.size()) - 1));
        switch (random.integer(0, 3)) {
            case 0: all.push_back(op("add", {all[a], all[b]})); break;
            case 1: all.push_back(op("clone", {all[a]})); break;
            default:
                if (a < in.size()) break;  // arguments do not change
                task("test_mix", Dtype::i64)
                    .use({updates(all[a].tile(0)), reads(all[b].tile(0))})
                    .params(mix_params{uint64_t(i)})
                    .priority(int(random.integer(-3, 3)))
                    .emit();
        }
    }
    const size_t last = all.size() - 1;
    return {all[size_t(random.integer(int64_t(fixed) - 1, int64_t(last)))], all[last]};
}

// A small model: products, rows, randomness, reductions and an update in place.
Tensors model(const Tensor& x, const Tensor& weight, const Tensor& moment) {
    const Tensor hidden = op("linear", {x, weight});
    const Tensor noise = op("normal", {}, {list(hidden.shape())});
    const Tensor y = op("softmax", {op("dropout", {op("add", {hidden, noise})}, {number(0.3)})});
    op("add_", {moment, op("sum", {y}, {list({1})})});
    return {y, op("mean", {op("mul", {y, moment})}), op("argmax", {y})};
}

Tensor normal(const Grid& grid) {
    const Tensor x(grid, Dtype::f32);
    return op("normal_", {x});
}

std::vector<std::vector<uint8_t>> bits(const Tensors& tensors) {
    std::vector<std::vector<uint8_t>> out;
    for (const Tensor& x : tensors) out.push_back(bytes_of(x));
    return out;
}

}  // namespace

TEST_CASE("a random program gives the eager results in every run") {
    const Session session(2, GENERATE("prio", "eager"));
    for (uint64_t seed = 0; seed < 40; ++seed) {
        INFO(seed);
        const Tensors in{scalar_of(3), scalar_of(4)};
        const Tensors here{scalar_of(5), scalar_of(6)}, there{scalar_of(5), scalar_of(6)};
        const auto program =
            compile(in, [&](const Tensors& x) { return random_function(seed, x, there); });
        for (int run = 0; run < 4; ++run) {
            const Tensors arguments{scalar_of(run), scalar_of(10 - run)};
            const auto eager = bits(random_function(seed, arguments, here));
            REQUIRE(bits(program->run(arguments)) == eager);
            REQUIRE(bits(there) == bits(here));
        }
    }
}

TEST_CASE("a model with randomness replays to the eager bits, for any cuts") {
    const Session session;
    for (const Dims& tile : {Dims{12, 10}, Dims{5, 10}, Dims{4, 3}}) {
        INFO(nn::to_string(tile));
        seed_random(3);
        const Tensor x = normal(grid_of({12, 10}, tile)),
                     weight = normal(grid_of({7, 10}, {4, 10}));
        const Tensor here = filled(Grid::whole({7}), Dtype::f32, 0);
        const Tensor there = filled(Grid::whole({7}), Dtype::f32, 0);
        const uint64_t counter = random_counter();
        const auto program =
            compile({x}, [&](const Tensors& in) { return model(in[0], weight, there); });
        CHECK(random_counter() == counter);
        std::vector<std::vector<std::vector<uint8_t>>> eager;
        for (int run = 0; run < 3; ++run) eager.push_back(bits(model(x, weight, here)));
        CHECK(eager[0] != eager[1]);
        const uint64_t after = random_counter();
        set_random_counter(counter);
        for (int run = 0; run < 3; ++run) CHECK(bits(program->run({x})) == eager[size_t(run)]);
        CHECK(random_counter() == after);
        CHECK(bits({there}) == bits({here}));
    }
}

TEST_CASE("every run reads its scalars, and applies additions to them in the recorded order") {
    const Session session;
    const Tensor x = scalar_of(0);
    const int32_t scalar = new_scalar(1);
    const auto program = compile({}, [&](const Tensors&) {
        const auto note = [&] { emit_note(x.tile(0), 0, {{Patch::scalar, 0, scalar}}); };
        note();
        sink().add_to_scalar(scalar, 10);
        op("neg", {x});  // dropped: additions keep their order among the remaining tasks
        note();
        sink().add_to_scalar(scalar, 100);
        return Tensors{};
    });
    CHECK(scalar_value(scalar) == 1);
    program->run({});
    set_scalar(scalar, 1000);
    program->run({});
    program->run({});
    CHECK(Notes::take() == std::vector<double>{1, 11, 1000, 1010, 1110, 1120});
    CHECK(scalar_value(scalar) == 1220);
    free_scalar(scalar);
}

TEST_CASE("an eager task takes the value that its scalar has at submission") {
    const Session session;
    const Tensor x = scalar_of(0);
    const int32_t scalar = new_scalar(0);
    const Gate closed;
    emit_gate(x.tile(0));
    for (int i = 0; i < 3; ++i) {
        set_scalar(scalar, i);
        emit_note(x.tile(0), -1, {{Patch::scalar, 0, scalar}});
    }
    set_scalar(scalar, 7);
    Gate::open();
    CHECK(Notes::take() == std::vector<double>{0, 1, 2});
    free_scalar(scalar);
}

TEST_CASE("arguments may have any cuts, and the run uses their values at the call") {
    const Session session;
    const Tensor like = numbered_tensor(grid_of({6, 4}, {2, 3}));
    const auto program =
        compile({like}, [](const Tensors& in) { return Tensors{op("neg", {in[0]})}; });
    Random random(4);
    for (int i = 0; i < 20; ++i) {
        const Tensor x = numbered_tensor(random_grid(random, {6, 4}), i);
        const Tensor y = program->run({x})[0];
        op("fill_", {x}, {number(0)});
        CHECK(y.grid() == like.grid());
        CHECK(values_of(op("neg", {y})) == numbered(24, i));
    }
}

TEST_CASE("a run with invalid arguments is refused with the reason, and the next one works") {
    const Session session;
    const Tensor x = numbered_tensor(Grid::whole({4}));
    const auto program = compile({x, x}, [](const Tensors& in) {
        return Tensors{op("add", {in[0], in[1]})};
    });
    const auto error = [&](const Tensors& in) { return error_of([&] { program->run(in); }); };
    const Tensor view = reshape(x, {2, 2}), stale = reshape(view, {4});
    op("fill_", {x}, {number(1)});
    CHECK_THAT(error({x}), contains("1 tensors given, 2 expected"));
    CHECK_THAT(error({x, Tensor()}), contains("argument 2 is missing"));
    CHECK_THAT(error({x, view}), contains("argument 2 is a view"));
    CHECK_THAT(error({x, stale}), contains("argument 2 is a view"));
    CHECK_THAT(error({x, numbered_tensor(Grid::whole({5}))}), contains("shape (4) is needed"));
    CHECK_THAT(error({x, op("to", {x}, {text("f32")})}), contains("not f32"));
    CHECK_THAT(error({x, Tensor(x.grid(), Dtype::i64)}), contains("never given a value"));
    CHECK(values_of(program->run({x, x})[0]) == Integers{2, 2, 2, 2});
}

TEST_CASE("a persistent tensor is returned itself, and earlier views of it are stale") {
    const Session session;
    const Tensor sum = scalar_of(0);
    const auto program = compile({}, [&](const Tensors&) {
        op("add_", {sum, op("full_like", {sum}, {number(2)})});
        return Tensors{sum, reshape(sum, {1, 1})};
    });
    const Tensor view = reshape(sum, {1});
    Tensors out;
    for (int i = 0; i < 3; ++i) out = program->run({});
    CHECK(view.stale());
    CHECK(out[0].identity() == sum.identity());
    CHECK_FALSE(out[1].stale());
    CHECK(tiles_of(out[1]) == tiles_of(sum));
    CHECK(values_of(out[1])[0] == 6);
}

TEST_CASE("the result of a run remains valid during later runs") {
    const Session session;
    const Tensor x = scalar_of(0);
    const auto program =
        compile({x}, [](const Tensors& in) { return Tensors{op("neg", {in[0]})}; });
    Tensors results;
    for (int i = 0; i < 20; ++i) results.push_back(program->run({scalar_of(i)})[0]);
    for (int i = 0; i < 20; ++i) CHECK(values_of(results[size_t(i)])[0] == -i);
}

TEST_CASE("the error of a kernel in a run is reported once, and the program runs again") {
    const Session session;
    const Tensor x = numbered_tensor(Grid::whole({3}));
    const Tensor index = tensor_of(Grid::whole({2}), {0, 2});
    const auto program = compile({index}, [&](const Tensors& in) {
        return Tensors{op("gather", {x, in[0]})};
    });
    program->run({tensor_of(Grid::whole({2}), {0, 9})});
    CHECK_THAT(error_of(wait_all), contains("gather: ") && contains("9"));
    CHECK(values_of(program->run({index})[0]) == Integers{0, 2});
}

TEST_CASE("a run does not wait for its tasks, and at most one earlier run is in flight") {
    const Session session;
    const Tensor gate = scalar_of(0), x = scalar_of(0);
    const auto program = compile({}, [&](const Tensors&) {
        for (int i = 0; i < 100; ++i) emit_note(x.tile(0), i);
        return Tensors{};
    });
    std::atomic<int> runs{0}, when_opened{-1};
    Gate closed;
    emit_gate(x.tile(0));
    std::thread opener([&] {
        for (int before = -1; before != runs;) {
            before = runs;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        when_opened = runs.load();
        Gate::open();
    });
    for (int i = 0; i < 5; ++i, ++runs) program->run({});
    opener.join();
    CHECK(when_opened >= 1);
    CHECK(when_opened <= 2);
    CHECK(Notes::take().size() == 500);
}

TEST_CASE("a run that is interrupted while it waits for an earlier run has not begun") {
    const Session session;
    const Tensor x = scalar_of(0);
    const int32_t scalar = new_scalar(0);
    const auto program = compile({}, [&](const Tensors&) {
        for (int i = 0; i < 100; ++i) emit_note(x.tile(0), i);
        sink().add_to_scalar(scalar, 1);
        return Tensors{};
    });
    {
        const Gate closed;
        emit_gate(x.tile(0));
        request_interrupt();
        int runs = 0;
        try {
            for (; runs < 5; ++runs) program->run({});
            FAIL("nothing waited");
        } catch (const Interrupted&) {
        }
        CHECK(scalar_value(scalar) == runs);
        clear_interrupt();
    }
    const size_t notes = Notes::take().size();
    CHECK(double(notes) == 100 * scalar_value(scalar));
    program->run({});
    CHECK(Notes::take().size() == 100);
    free_scalar(scalar);
}

TEST_CASE("a program may be destroyed while its run is in flight, and its results remain") {
    const Session session;
    const Tensor x = scalar_of(2);
    auto program = compile({x}, [](const Tensors& in) {
        Tensor y = in[0];
        for (int i = 0; i < 300; ++i) y = op("neg", {y});
        return Tensors{y};
    });
    for (int i = 0; i < 3; ++i) {
        const Tensor y = program->run({x})[0];
        if (i == 2) program.reset();
        CHECK(values_of(y)[0] == 2);
    }
}

TEST_CASE("replayed tasks are counted") {
    const Session session;
    const Tensor x = scalar_of(2);
    const auto program =
        compile({x}, [](const Tensors& in) { return Tensors{op("neg", {in[0]})}; });
    const int64_t before = stats().replayed_tasks;
    for (int i = 0; i < 3; ++i) program->run({x});
    CHECK(stats().replayed_tasks == before + 3 * program->program().info.tasks);
}

}  // namespace nn::engine_test
