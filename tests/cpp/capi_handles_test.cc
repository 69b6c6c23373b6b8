// The C API: stale, released, zero and forged handles, scopes, calls in the wrong state of a
// recording, single tasks, and use after a shutdown.
#include <climits>

#include "kernels/params/fill.h"
#include "tests/cpp/capi_test.h"

namespace nn::capi_test {
namespace {

// Handles that are not live tensors: zero, out of range, of another generation, released, of a
// program.
std::vector<nn_ref> bad_tensors(nn_ref live) {
    const nn_ref released = neg(live);
    REQUIRE_OK(nn_release(&released));
    REQUIRE_OK(nn_record_begin());
    nn_ref program{};
    REQUIRE_OK(nn_record_end(nullptr, 0, nullptr, 0, &program));
    return {{0, 0},
            {0, 1},
            {-1, 1},
            {INT32_MIN, INT32_MIN},
            {INT32_MAX, 1},
            {live.index, live.generation + 1},
            {live.index, live.generation - 1},
            {live.index, 0},
            {live.index, INT32_MIN},
            {live.index + 100000, live.generation},
            released,
            program};
}

struct Recorded {  // x -> -x
    nn_ref x = full({2}, 1), input{}, program{};
    Recorded() {
        REQUIRE_OK(nn_record_begin());
        REQUIRE_OK(nn_record_input(&x, &input));
        const nn_ref y = neg(input);
        REQUIRE_OK(nn_record_end(&input, 1, &y, 1, &program));
    }
};

nn_task_operand operand(nn_ref tensor, int mode, int64_t tile = 0) { return {tensor, tile, mode}; }

TEST_CASE("a computed scalar follows its operands, and holds them") {
    const Library library;
    int32_t base = -1, id = -1;
    double value = 0;
    REQUIRE_OK(nn_scalar_new(3, &base));
    const nn_value a = slot(base), b = {1, 0, 4, nullptr, nullptr};
    for (const auto& [op, expected] :
         {std::pair{'+', 7.0}, {'-', -1.0}, {'*', 12.0}, {'/', 0.75}, {'^', 81.0}}) {
        INFO(op);
        REQUIRE_OK(nn_scalar_computed(op, &a, &b, &id));
        REQUIRE_OK(nn_scalar_get(id, &value));
        CHECK(value == expected);
        CHECK_REFUSED(nn_scalar_set(id, 1), "cannot change");
        CHECK_REFUSED(nn_scalar_add(id, 1), "cannot change");
        if (op != '^') REQUIRE_OK(nn_scalar_free(id));
    }
    REQUIRE_OK(nn_scalar_set(base, 2));
    REQUIRE_OK(nn_scalar_free(base));
    REQUIRE_OK(nn_scalar_get(id, &value));
    CHECK(value == 16);
    REQUIRE_OK(nn_scalar_free(id));
    CHECK_REFUSED(nn_scalar_get(base, &value), "freed scalar");
    CHECK_REFUSED(nn_scalar_computed('%', &b, &b, &id), "operator");
    CHECK_REFUSED(nn_scalar_computed(-1, &b, &b, &id), "operator");
    const nn_value none = {0, 0, 0, nullptr, nullptr};
    CHECK_REFUSED(nn_scalar_computed('+', &none, &b, &id), "neither a number nor a scalar");
    CHECK_REFUSED(nn_scalar_computed('+', nullptr, &b, &id), "a is NULL");
}

}  // namespace

TEST_CASE("every function that takes a tensor refuses a handle that is not a live one") {
    const Library library;
    const nn_ref x = full({2}, 1);
    double buffer[2];
    const int64_t whole = 0;
    for (const nn_ref& bad : bad_tensors(x)) {
        INFO(bad.index << ", " << bad.generation);
        nn_tensor_info info;
        int32_t count, room = 1;
        nn_ref out;
        const char* const why = "not a live tensor";
        CHECK_REFUSED(nn_tensor_info_get(&bad, &info), why);
        CHECK_REFUSED(nn_read(&bad, buffer, 16), why);
        CHECK_REFUSED(nn_write(&bad, buffer, 16), why);
        CHECK_REFUSED(nn_cuts(&bad, 0, nullptr, 0, &count), why);
        CHECK_REFUSED(nn_retile(&bad, &whole, 1, &out), why);
        const char* const missing = bad.index == 0 ? "'x' is missing" : why;
        CHECK_REFUSED(nn_apply(op_index("neg"), &bad, 1, nullptr, 0, &out, &room), missing);
        REQUIRE_OK(nn_record_begin());
        CHECK_REFUSED(nn_record_input(&bad, &out), why);
        CHECK(nn_recording() == 1);
        CHECK_REFUSED(nn_record_end(&bad, 1, nullptr, 0, &out), "compile: ");
        nn_record_abort();
    }
    const nn_ref* const none = nullptr;
    nn_tensor_info info;
    int32_t count;
    nn_ref out;
    CHECK_REFUSED(nn_tensor_info_get(none, &info), "tensor is NULL");
    CHECK_REFUSED(nn_read(none, buffer, 16), "tensor is NULL");
    CHECK_REFUSED(nn_write(none, buffer, 16), "tensor is NULL");
    CHECK_REFUSED(nn_cuts(none, 0, nullptr, 0, &count), "tensor is NULL");
    CHECK_REFUSED(nn_retile(none, &whole, 1, &out), "tensor is NULL");
    CHECK(values(x) == std::vector<double>{1, 1});
}

TEST_CASE("every function that takes a program refuses other handles, tensors too") {
    const Library library;
    const Recorded r;
    nn_ref out;
    nn_program_info_t info;
    const nn_ref forged{r.program.index, r.program.generation + 1};
    REQUIRE_OK(nn_program_info(&r.program, &info));
    CHECK(info.tasks == 1);
    for (const nn_ref& bad : {r.x, forged, nn_ref{0, 0}, nn_ref{INT32_MAX, 1}}) {
        CHECK_REFUSED(nn_program_info(&bad, &info), "not a live program");
        CHECK_REFUSED(nn_program_run(&bad, &r.x, 1, &out, 1), "not a live program");
    }
    CHECK_REFUSED(nn_program_info(nullptr, &info), "program is NULL");
    CHECK_REFUSED(nn_program_info(&r.program, nullptr), "out is NULL");
    CHECK_REFUSED(nn_program_run(nullptr, &r.x, 1, &out, 1), "program is NULL");
    REQUIRE_OK(nn_release(&r.program));
    CHECK_REFUSED(nn_program_run(&r.program, &r.x, 1, &out, 1), "not a live program");
}

TEST_CASE("releasing a handle twice, a zero handle or a forged one has no effect") {
    const Library library;
    const nn_ref x = full({2}, 1);
    for (const nn_ref& bad : bad_tensors(x)) REQUIRE_OK(nn_release(&bad));
    REQUIRE_OK(nn_release(nullptr));
    const int64_t alive = tensors_alive();
    REQUIRE_OK(nn_release(&x));
    REQUIRE_OK(nn_release(&x));
    CHECK(tensors_alive() == alive - 1);
    const nn_ref y = full({2}, 5);  // perhaps in x's entry of the handle table
    REQUIRE_OK(nn_release(&x));
    CHECK(values(y) == std::vector<double>{5, 5});
}

TEST_CASE("a released input of a task in flight is still read") {
    const Library library;
    for (int i = 0; i < 50; ++i) {
        const nn_ref x = full({2}, i), y = neg(x);
        REQUIRE_OK(nn_release(&x));
        CHECK(values(y)[0] == -i);
        REQUIRE_OK(nn_release(&y));
    }
    CHECK(tensors_alive() == 0);
}

TEST_CASE("a scope releases what was made in it, and what it keeps moves to the outer scope") {
    const Library library;
    const nn_ref before = full({1}, 1);
    REQUIRE_OK(nn_scope_begin());
    const nn_ref outer = full({1}, 2);
    REQUIRE_OK(nn_scope_begin());
    const nn_ref kept = full({1}, 3);
    neg(kept);
    CHECK(tensors_alive() == 4);
    const nn_ref keep[] = {{0, 0}, kept, {kept.index, kept.generation + 1}, before};
    CHECK_REFUSED(nn_scope_end(nullptr, 1), "bad list");
    CHECK_REFUSED(nn_scope_end(keep, -1), "bad list");
    CHECK(tensors_alive() == 4);
    REQUIRE_OK(nn_scope_end(keep, 4));
    CHECK(tensors_alive() == 3);
    CHECK(values(kept)[0] == 3);
    REQUIRE_OK(nn_release(&outer));  // before its scope ends
    REQUIRE_OK(nn_scope_end(nullptr, 0));
    CHECK(tensors_alive() == 1);
    CHECK(values(before)[0] == 1);
    CHECK_REFUSED(nn_scope_end(nullptr, 0), "none is open");
}

TEST_CASE("calls that need a recording fail without one, and a recording cannot begin in another") {
    const Library library;
    const nn_ref x = full({2}, 1);
    nn_ref out{7, 7};
    CHECK(nn_recording() == 0);
    CHECK_REFUSED(nn_record_input(&x, &out), "no recording is under way");
    CHECK_REFUSED(nn_record_end(nullptr, 0, nullptr, 0, &out), "no recording is under way");
    REQUIRE_OK(nn_record_abort());
    REQUIRE_OK(nn_record_begin());
    CHECK(nn_recording() == 1);
    CHECK_REFUSED(nn_record_begin(), "another recording");
    CHECK(nn_recording() == 1);
    CHECK_REFUSED(nn_record_input(&x, nullptr), "out is NULL");
    CHECK_REFUSED(nn_record_input(nullptr, &out), "like is NULL");
    CHECK_REFUSED(nn_record_end(nullptr, 0, nullptr, 0, nullptr), "program is NULL");
    CHECK_REFUSED(nn_record_end(nullptr, 1, nullptr, 0, &out), "bad list");
    CHECK_REFUSED(nn_record_end(nullptr, 0, nullptr, -1, &out), "bad list");
    CHECK(nn_recording() == 1);
    REQUIRE_OK(nn_record_abort());
    CHECK(nn_recording() == 0);
    check_usable();
}

TEST_CASE("reading, writing and running fail while recording, and the recording continues") {
    const Library library;
    const Recorded r;
    double buffer[2] = {};
    nn_ref out, input, program;
    REQUIRE_OK(nn_record_begin());
    REQUIRE_OK(nn_record_input(&r.x, &input));
    CHECK_REFUSED(nn_read(&r.x, buffer, 16), "cannot be read while");
    CHECK_REFUSED(nn_write(&r.x, buffer, 16), "cannot be written while");
    CHECK_REFUSED(nn_program_run(&r.program, &r.x, 1, &out, 1), "cannot run while");
    const nn_ref y = neg(input);
    nn_tensor_info info;
    REQUIRE_OK(nn_tensor_info_get(&y, &info));
    CHECK(info.temporary == 1);
    REQUIRE_OK(nn_sync());
    REQUIRE_OK(nn_idle());
    REQUIRE_OK(nn_record_end(&input, 1, &y, 1, &program));
    REQUIRE_OK(nn_program_run(&program, &r.x, 1, &out, 1));
    CHECK(values(out)[0] == -1);
    CHECK_REFUSED(nn_read(&y, buffer, 16), "exists only inside");
    CHECK_REFUSED(apply("neg", {y}, {}, &out), "exists only inside");
}

TEST_CASE("a recording that cannot become a program ends, and the next one works") {
    const Library library;
    const nn_ref x = full({2}, 1);
    nn_ref program{7, 7}, empty;
    REQUIRE_OK(nn_record_begin());
    CHECK_REFUSED(nn_record_end(&x, 1, nullptr, 0, &program), "was not made for this recording");
    CHECK(program.index == 0);
    CHECK(nn_recording() == 0);
    REQUIRE_OK(nn_record_begin());
    REQUIRE_OK(apply("empty", {}, {list({2})}, &empty));
    CHECK_REFUSED(nn_record_end(nullptr, 0, &empty, 1, &program), "never given a value");
    REQUIRE_OK(nn_record_begin());
    const nn_ref absent{0, 0};
    CHECK_REFUSED(nn_record_end(nullptr, 0, &absent, 1, &program), "result 1 is missing");
    Recorded();
}

TEST_CASE("a program requires inputs like the recorded ones, and room for its results") {
    const Library library;
    const Recorded r;
    nn_ref out[2] = {{7, 7}, {7, 7}};
    const nn_ref two[] = {r.x, r.x}, other = full({3}, 1), absent{0, 0};
    CHECK_REFUSED(nn_program_run(&r.program, &r.x, 1, out, 0), "1 results, room for 0");
    CHECK_REFUSED(nn_program_run(&r.program, &r.x, 1, out, -1), "1 results, room for -1");
    CHECK_REFUSED(nn_program_run(&r.program, &r.x, 1, nullptr, 1), "1 results, room for 0");
    CHECK_REFUSED(nn_program_run(&r.program, two, 2, out, 2), "2 tensors given, 1 expected");
    CHECK_REFUSED(nn_program_run(&r.program, nullptr, 0, out, 1), "0 tensors given, 1 expected");
    CHECK_REFUSED(nn_program_run(&r.program, nullptr, 1, out, 1), "bad list");
    CHECK_REFUSED(nn_program_run(&r.program, &r.x, -1, out, 1), "bad list");
    CHECK_REFUSED(nn_program_run(&r.program, &absent, 1, out, 1), "argument 1 is missing");
    CHECK_REFUSED(nn_program_run(&r.program, &other, 1, out, 1), "shape (2) is needed");
    CHECK_REFUSED(nn_program_run(&r.program, &r.input, 1, out, 1), "argument 1 exists only inside");
    CHECK(out[0].index == 7);
    REQUIRE_OK(nn_program_run(&r.program, &r.x, 1, out, 2));
    CHECK(values(out[0])[0] == -1);
    CHECK(out[1].index == 7);
}

TEST_CASE("a scope that ends in a recording keeps the recorded tasks") {
    const Library library;
    const nn_ref x = full({2}, 3);
    nn_ref input, program, out;
    REQUIRE_OK(nn_record_begin());
    REQUIRE_OK(nn_record_input(&x, &input));
    REQUIRE_OK(nn_scope_begin());
    const nn_ref y = neg(neg(neg(input)));
    REQUIRE_OK(nn_scope_end(&y, 1));
    REQUIRE_OK(nn_record_end(&input, 1, &y, 1, &program));
    REQUIRE_OK(nn_release(&input));
    REQUIRE_OK(nn_release(&y));
    REQUIRE_OK(nn_program_run(&program, &x, 1, &out, 1));
    CHECK(values(out)[0] == -3);
}

TEST_CASE("a single task runs a kernel on tiles, and an invalid one is refused") {
    const Library library;
    const nn_ref x = full({4}, 1);
    nn_ref view, cut;
    REQUIRE_OK(nn_retile(&x, Numbers{2}.data(), 1, &cut));
    REQUIRE_OK(apply("reshape", {x}, {list({2, 2})}, &view));
    const nn_fill_params params{2, 7};
    const int64_t size = sizeof params;
    const auto fill = [&](nn_task_operand y, int64_t bytes = sizeof(nn_fill_params),
                          int32_t where = 0) {
        return nn_task("fill", f64, &y, 1, &params, bytes, 0, where);
    };
    REQUIRE_OK(fill(operand(cut, 1, 1)));
    CHECK(values(cut) == std::vector<double>{1, 1, 7, 7});
    CHECK_REFUSED(nn_task(nullptr, f64, nullptr, 0, nullptr, 0, 0, 0), "kernel is NULL");
    CHECK_REFUSED(nn_task("", f64, nullptr, 0, nullptr, 0, 0, 0), "unknown kernel ''");
    CHECK_REFUSED(nn_task("fill", f64, nullptr, 1, &params, size, 0, 0), "1 operands given");
    const nn_task_operand two[] = {operand(x, 1), operand(x, 1)}, good = operand(cut, 1);
    for (int32_t count : {0, 2, -1, INT32_MIN, INT32_MAX})
        CHECK_REFUSED(nn_task("fill", f64, two, count, &params, size, 0, 0),
                      "operands given, it has 1");
    for (int32_t dtype : {-1, 7, INT32_MIN, INT32_MAX})
        CHECK_REFUSED(nn_task("fill", dtype, &good, 1, &params, size, 0, 0), "is outside [0, 7)");
    for (int32_t where : {-1, 3, INT32_MIN, INT32_MAX})
        CHECK_REFUSED(fill(good, size, where), "where is");
    for (int64_t bytes : {int64_t(0), size - 1, size + 1, INT64_MAX})
        CHECK_REFUSED(fill(good, bytes), "nn_fill_params of 16 bytes");
    CHECK_REFUSED(fill(good, -1), "parameters of -1 bytes");
    CHECK_REFUSED(nn_task("fill", f64, &good, 1, nullptr, size, 0, 0), "params is NULL");
    for (int64_t tile : {int64_t(-1), int64_t(2), INT64_MAX, INT64_MIN})
        CHECK_REFUSED(fill(operand(cut, 1, tile)), "has tiles 1 to 2");
    for (int32_t mode : {0, 3, -1, INT32_MAX})
        CHECK_REFUSED(fill(operand(cut, mode)), "bad access");
    CHECK_REFUSED(fill(operand(view, 1)), "is a view");
    CHECK_REFUSED(fill(operand({0, 0}, 1)), "operand 'y' is missing");
    CHECK_REFUSED(fill(operand({x.index, x.generation + 1}, 1)), "not a live tensor");
    CHECK(values(x) == std::vector<double>{1, 1, 1, 1});
    check_usable();
}

TEST_CASE("a task on a device that its kernel does not support is refused") {
    const Library library;
    int32_t cpus, gpus;
    REQUIRE_OK(nn_workers(&cpus, &gpus));
    if (gpus > 0) {
        WARN("skipped: this machine has GPUs");
        return;
    }
    const nn_ref x = full({2}, 1);
    const nn_task_operand y = operand(x, 1);
    const nn_fill_params params{2, 7};
    CHECK_REFUSED(nn_task("fill", f64, &y, 1, &params, sizeof params, 0, 2), "no worker can run");
    CHECK(values(x)[0] == 1);
}

TEST_CASE("after a shutdown old handles are stale and new tensors work") {
    const Library library;
    const Recorded r;
    nn_ref out;
    int32_t id;
    REQUIRE_OK(nn_scalar_new(5, &id));
    REQUIRE_OK(nn_scope_begin());
    const nn_ref scoped = full({1}, 1);
    REQUIRE_OK(nn_record_begin());
    REQUIRE_OK(nn_shutdown());
    REQUIRE_OK(nn_shutdown());
    CHECK(nn_recording() == 0);
    CHECK(tensors_alive() == 0);
    double buffer[2];
    CHECK_REFUSED(nn_read(&r.x, buffer, 16), "not a live tensor");
    CHECK_REFUSED(nn_read(&scoped, buffer, 8), "not a live tensor");
    CHECK_REFUSED(nn_program_run(&r.program, &r.x, 1, &out, 1), "not a live program");
    REQUIRE_OK(nn_sync());
    REQUIRE_OK(nn_idle());
    REQUIRE_OK(nn_release(&r.x));
    REQUIRE_OK(nn_scope_end(&scoped, 1));
    REQUIRE_OK(nn_scalar_free(id));
    check_usable();
    Recorded();
}

TEST_CASE("results and their program may be released in any order, also across shutdowns") {
    for (int order = 0; order < 6; ++order) {
        const Library library(1 + order % 2);
        const Recorded r;
        nn_ref out;
        for (int i = 0; i < 3; ++i) REQUIRE_OK(nn_program_run(&r.program, &r.x, 1, &out, 1));
        const nn_ref refs[] = {r.x, r.program, out};
        for (int i = 0; i < order % 4; ++i) REQUIRE_OK(nn_release(&refs[(order + i) % 3]));
        if (order % 2) REQUIRE_OK(nn_shutdown());
        for (const nn_ref& ref : refs) REQUIRE_OK(nn_release(&ref));
        double value[2];
        for (const nn_ref& ref : refs)
            CHECK_REFUSED(nn_read(&ref, value, sizeof value), "this handle is not a live tensor");
    }
}

}  // namespace nn::capi_test
