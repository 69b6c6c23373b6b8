// Shared by the tests of the C API: the library for one test, checked calls, and ops applied by
// name.
#pragma once
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/nn_plan.h"
#include "engine/base/interrupts.h"
#include "tests/cpp/kernel_test.h"

namespace nn::capi_test {

using Numbers = std::vector<int64_t>;
constexpr int f32 = 0, f64 = 1, i64 = 4;

// The library for one test; its end removes whatever the test left open.
struct Library {
    explicit Library(int cpus = 2) { nn_configure(cpus, "", -1, 0, 0, 0); }
    Library(const Library&) = delete;
    ~Library() {
        nn_defer_interrupts(0);
        nn_clear_interrupt();
        nn_record_abort();
        while (nn_scope_end(nullptr, 0) == NN_OK) {
        }
        nn_memory_budget(0);
        nn_shutdown();
        nn_sync();  // clears an unread error of a kernel
        nn_configure(0, nullptr, -1, 0, 0, 0);
    }
};

// The message of a refused call; "" if it succeeded or left no message.
inline std::string refusal(int status) {
    if (status != NN_ERROR && status != NN_OUT_OF_MEMORY && status != NN_INTERRUPTED) return "";
    return nn_error();
}
inline auto says(const std::string& text) { return Catch::Matchers::Contains(text); }
// A call that must fail, with a message that contains `text`.
#define CHECK_REFUSED(call, text) CHECK_THAT(refusal(call), says(text))
#define REQUIRE_OK(call)                   \
    do {                                   \
        const int status = (call);         \
        INFO(#call << ": " << nn_error()); \
        REQUIRE(status == NN_OK);          \
    } while (false)

inline int op_index(const std::string& name) {
    nn_op_info_t info;
    for (int i = 0; i < nn_op_count(); ++i)
        if (nn_op_info(i, &info) == NN_OK && name == info.name) return i;
    FAIL("no op " << name);
    return -1;
}

inline nn_value number(double value) { return {1, 0, value, nullptr, nullptr}; }
inline nn_value text(const char* value) { return {2, 0, 0, value, nullptr}; }
inline nn_value list(const Numbers& values) {
    return {3, int32_t(values.size()), 0, nullptr, values.data()};
}
inline nn_value slot(int32_t id) { return {4, 0, double(id), nullptr, nullptr}; }

inline int apply(const char* op, const std::vector<nn_ref>& inputs,
                 const std::vector<nn_value>& values, nn_ref* out) {
    nn_ref outputs[8] = {};
    int32_t count = 8;
    const int status = nn_apply(op_index(op), inputs.data(), int32_t(inputs.size()), values.data(),
                                int32_t(values.size()), outputs, &count);
    if (status == NN_OK) *out = outputs[0];
    return status;
}
inline nn_ref full(const Numbers& shape, double value, const char* dtype = "f64") {
    nn_ref out{};
    REQUIRE_OK(apply("full", {}, {list(shape), number(value), text(dtype)}, &out));
    return out;
}
inline nn_ref neg(nn_ref x) {
    nn_ref out{};
    REQUIRE_OK(apply("neg", {x}, {}, &out));
    return out;
}
inline std::vector<double> values(nn_ref x) {
    nn_tensor_info info;
    REQUIRE_OK(nn_tensor_info_get(&x, &info));
    REQUIRE(info.dtype == f64);
    std::vector<double> out(size_t(info.count));
    REQUIRE_OK(nn_read(&x, out.data(), info.bytes));
    return out;
}
inline int64_t tensors_alive() {
    int64_t count = -1;
    REQUIRE_OK(nn_tensors_alive(&count));
    return count;
}
// The library still computes.
inline void check_usable() {
    REQUIRE_OK(nn_sync());
    const nn_ref x = full({3}, 2), y = neg(x);
    CHECK(values(y) == std::vector<double>{-2, -2, -2});
    REQUIRE_OK(nn_release(&x));
    REQUIRE_OK(nn_release(&y));
}

}  // namespace nn::capi_test
