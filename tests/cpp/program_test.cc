// Recording a program: what may be recorded and returned, which tasks are kept, the lifetimes of
// temporaries and their memory.
#include "engine/graph/sink.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

using Tensors = std::vector<Tensor>;
constexpr int64_t n = 1000, bytes = 8 * n;

Tensor numbers() { return numbered_tensor(Grid::whole({n})); }
Tensor neg(const Tensor& x) { return op("neg", {x}); }
Tensor add(const Tensor& a, const Tensor& b) { return op("add", {a, b}); }

// The error of recording f, after which another recording can begin.
std::string error_of_recording(const Tensors& like, const Function& f) {
    const std::string error = error_of([&] { compile(like, f); });
    CHECK(recording_number() == 0);
    CHECK(recording_program() == nullptr);
    return error;
}

}  // namespace

TEST_CASE("recording runs no task, running does, and gives the function's results") {
    const Session session;
    const Tensor x = numbers(), seen = scalar_of(0);
    const auto program = compile({x}, [&](const Tensors& in) {
        emit_note(seen.tile(0), 1);
        return Tensors{add(in[0], in[0]), neg(in[0])};
    });
    CHECK(Notes::take().empty());
    CHECK(program->program().outputs.size() == 2);
    const Tensors out = program->run({x});
    CHECK(Notes::take() == std::vector<double>{1});
    CHECK(values_of(out[0]) == values_of(add(x, x)));
    CHECK(values_of(out[1]) == values_of(neg(x)));
}

TEST_CASE("only one recording can be open at a time") {
    const Session session;
    CHECK_THAT(error_of([] { end_recording({}, {}); }), contains("no recording is under way"));
    abort_recording();
    begin_recording();
    const uint32_t number = recording_number();
    CHECK(number > 0);
    CHECK_THAT(error_of(begin_recording), contains("another recording is under way"));
    CHECK(recording_number() == number);
    abort_recording();
    CHECK(recording_number() == 0);
    begin_recording();
    CHECK(recording_number() > number);
    end_recording({}, {});
}

TEST_CASE("values can be neither read nor written while recording") {
    const Session session;
    const Tensor x = numbers();
    CHECK_THAT(error_of_recording({}, [&](const Tensors&) { return values_of(x), Tensors{}; }),
               contains("cannot be read while"));
    CHECK_THAT(error_of_recording({}, [&](const Tensors&) { return Tensors{numbers()}; }),
               contains("cannot be written while"));
    CHECK(values_of(x) == numbered(n));
}

TEST_CASE("a program does not run while another one is recorded") {
    const Session session;
    const Tensor x = numbers();
    const auto program = compile({x}, [](const Tensors& in) { return Tensors{neg(in[0])}; });
    CHECK_THAT(error_of_recording({x}, [&](const Tensors& in) { return program->run(in); }),
               contains("cannot run while another"));
    CHECK(values_of(program->run({x})[0])[1] == -1);
}

TEST_CASE("a recorded function must return values of its own recording") {
    const Session session;
    const Tensor x = numbers();
    Tensor inner;
    const auto other =
        compile({x}, [&](const Tensors& in) { return inner = neg(in[0]), Tensors{inner}; });
    CHECK_THAT(error_of_recording({x}, [](const Tensors&) { return Tensors{Tensor()}; }),
               contains("result 1 is missing"));
    CHECK_THAT(
        error_of_recording({x}, [](const Tensors&) { return Tensors{Tensor(Grid(), Dtype::f32)}; }),
        contains("result 1 was never given a value"));
    CHECK_THAT(error_of_recording({x}, [&](const Tensors&) { return Tensors{inner}; }),
               contains("result 1 belongs to another"));
    CHECK_THAT(error_of_recording({x},
                                  [](const Tensors& in) {
                                      const Tensor y = neg(in[0]), view = reshape(y, {2, n / 2});
                                      op("fill_", {y}, {number(1)});
                                      return Tensors{y, view};
                                  }),
               contains("result 2 is a view"));
    CHECK_THAT(error_of([&] {
                   begin_recording();
                   prepare(*end_recording({x}, {}));
               }),
               contains("input 1 was not made for this recording"));
    CHECK(values_of(other->run({x})[0])[1] == -1);
}

TEST_CASE("an input that is used but missing at the end of the recording is refused") {
    const Session session;
    const auto record = [](bool use) {
        begin_recording();
        const Tensor in(Grid::whole({n}), Dtype::i64);
        in.tile(0)->recorded = true;
        const Tensor out = use ? neg(in) : in;
        prepare(*end_recording({}, {out}));
    };
    CHECK_THAT(error_of([&] { record(true); }), contains("neg reads an input that is not among"));
    CHECK_THAT(error_of([&] { record(false); }), contains("result 1 was never given a value"));
}

TEST_CASE("a temporary exists in its own recording only") {
    const Session session;
    const Tensor x = numbers();
    Tensor inner;
    const auto program =
        compile({x}, [&](const Tensors& in) { return inner = neg(in[0]), Tensors{inner}; });
    program->run({x});
    const char* const why = "exists only inside the compiled function";
    CHECK_THAT(error_of([&] { neg(inner); }), contains(why));
    CHECK_THAT(error_of([&] { values_of(inner); }), contains(why));
    CHECK_THROWS_AS(write_tensor(inner, numbered(n).data()), Error);
    CHECK_THAT(error_of_recording({x}, [&](const Tensors&) { return Tensors{neg(inner)}; }),
               contains(why));
    CHECK_THAT(error_of([&] { program->run({inner}); }), contains("argument 1 exists only inside"));
}

TEST_CASE("a recording can read its own results, but no tensor without a value") {
    const Session session;
    const Tensor empty(Grid::whole({n}), Dtype::i64);
    CHECK_THAT(error_of_recording({}, [&](const Tensors&) { return Tensors{neg(empty)}; }),
               contains("never given a value"));
    const auto program = compile({}, [&](const Tensors&) {
        op("fill_", {empty}, {number(4)});
        return Tensors{neg(empty)};
    });
    CHECK_THAT(error_of([&] { neg(empty); }), contains("never given a value"));
    CHECK(values_of(program->run({})[0])[7] == -4);
    CHECK(values_of(empty)[7] == 4);
}

TEST_CASE("tasks without used results are dropped, with the tasks that only they needed") {
    const Session session;
    const Tensor x = numbers();
    const auto program = compile({x}, [](const Tensors& in) {
        neg(neg(neg(in[0])));
        const Tensor wanted = neg(in[0]);
        neg(wanted);
        return Tensors{wanted};
    });
    CHECK(program->program().info.tasks == 1);
    CHECK(values_of(program->run({x})[0]) == values_of(neg(x)));
}

TEST_CASE("a value that is overwritten before it is read is not computed") {
    const Session session;
    const auto program = compile({}, [](const Tensors&) {
        const Tensor y = filled(Grid::whole({n}), Dtype::i64, 1);
        for (int value : {2, 3}) fill(y, value);
        return Tensors{y};
    });
    CHECK(program->program().info.tasks == 1);
    CHECK(values_of(program->run({})[0])[0] == 3);
}

TEST_CASE("a task that changes a persistent tensor is kept, with all that it reads") {
    const Session session;
    const Tensor x = numbers(), sum = filled(Grid::whole({n}), Dtype::i64, 0);
    const auto program = compile({x}, [&](const Tensors& in) {
        op("add_", {sum, neg(in[0])});
        return Tensors{};
    });
    for (int i = 0; i < 3; ++i) CHECK(program->run({x}).empty());
    CHECK(values_of(sum)[5] == -15);
}

TEST_CASE("a program reports its tasks, tiles, FLOPs and peak bytes") {
    const Session session;
    const Tensor x = numbers(), weight = numbers();
    const auto program = compile({x}, [&](const Tensors& in) {
        const Tensor a = add(in[0], weight);  // in, a
        const Tensor b = neg(a);              // a, b: in is freed
        const Tensor c = neg(b);              // a, b, c
        const Tensor d = add(a, c);           // a, c, d: b is freed
        return Tensors{d};
    });
    const ProgramInfo info = program->program().info;
    CHECK(info.tasks == 4);
    CHECK(info.tiles == 6);
    CHECK(info.flops == 4.0 * n);
    CHECK(info.persistent_bytes == bytes);
    CHECK(info.peak_bytes == 3 * int64_t(arena_bytes(bytes)));
}

TEST_CASE("the memory of a temporary is freed after its last use") {
    const Session session;
    if (gpus() > 0) {
        WARN("skipped: with GPUs StarPU keeps what it frees");
        return;
    }
    const int64_t size = 1 << 20;
    const Tensor x = filled(Grid::whole({size / 8}), Dtype::i64, 1);
    const auto program = compile({x}, [](const Tensors& in) {
        Tensor y = in[0];
        for (int i = 0; i < 50; ++i) y = neg(y);
        return Tensors{y};
    });
    CHECK(program->program().info.peak_bytes == 2 * size);
    for (int round = 0; round < 3; ++round) {
        wait_all();
        const int64_t before = arena_info().in_use;
        reset_peak();
        Tensor y = program->run({x})[0];
        wait_all();
        CHECK(arena_info().peak - before <= 4 * size);  // and a tile being freed, and the result
        CHECK(arena_info().in_use - before == size);
        y = Tensor();
        wait_all();
        CHECK(arena_info().in_use == before);
    }
}

TEST_CASE("an input that is unused, or returned, is freed at the end") {
    const Session session;
    if (gpus() > 0) {
        WARN("skipped: with GPUs StarPU keeps what it frees");
        return;
    }
    const Tensor x = numbers();
    const auto program = compile({x, x}, [](const Tensors& in) { return Tensors{in[0]}; });
    CHECK(program->program().info.peak_bytes == 2 * int64_t(arena_bytes(bytes)));
    wait_all();
    const int64_t before = arena_info().in_use;
    Tensor y = program->run({x, x})[0];
    CHECK(values_of(y) == numbered(n));
    y = Tensor();
    wait_all();
    CHECK(arena_info().in_use == before);
}

TEST_CASE("scalars that a program reads live as long as the program") {
    const Session session;
    const Tensor x = scalar_of(0);
    const int32_t scalar = new_scalar(1);
    auto program = compile({}, [&](const Tensors&) {
        emit_note(x.tile(0), 0, {{Patch::scalar, 0, scalar}});
        sink().add_to_scalar(scalar, 1);
        return Tensors{};
    });
    free_scalar(scalar);
    for (int i = 0; i < 2; ++i) program->run({});
    CHECK(Notes::take() == std::vector<double>{1, 2});
    CHECK(scalar_value(scalar) == 3);
    program.reset();
    CHECK_THROWS_AS(scalar_value(scalar), Error);
}

TEST_CASE("an aborted recording frees its scalars") {
    const int32_t scalar = new_scalar(1);
    begin_recording();
    sink().add_to_scalar(scalar, 1);
    free_scalar(scalar);
    CHECK(scalar_value(scalar) == 1);
    abort_recording();
    CHECK_THROWS_AS(scalar_value(scalar), Error);
}

}  // namespace nn::engine_test
