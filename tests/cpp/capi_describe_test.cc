// The C API's descriptions of itself: versions, ops and kernels.
#include <climits>

#include "engine/ops/op.h"
#include "tests/cpp/capi_test.h"

namespace nn::capi_test {
namespace {

const int32_t bad_numbers[] = {-1, INT32_MIN, INT32_MAX, 1000};

}  // namespace

TEST_CASE("the C API reports its versions and parts") {
    const std::string version = nn_version();
    for (const char* part : {"nnlua ", "LuaJIT ", "StarPU ", "BLAS ", "CUDA "})
        CHECK_THAT(version, says(part));
    CHECK(nn_op_count() > 100);
    CHECK(nn_kernel_count() > 100);
}

TEST_CASE("the C API reports the rates of products, which are 0 or more") {
    double f32 = -1, bf16 = -1;
    REQUIRE_OK(nn_core_rates(&f32, &bf16));
    CHECK(f32 >= 0);
    CHECK(bf16 >= 0);
    CHECK_REFUSED(nn_core_rates(nullptr, &bf16), "f32 is NULL");
    CHECK_REFUSED(nn_core_rates(&f32, nullptr), "bf16 is NULL");
}

TEST_CASE("every part of every op and kernel has a description, and no others do") {
    for (int op = 0; op < nn_op_count(); ++op) {
        nn_op_info_t info;
        REQUIRE_OK(nn_op_info(op, &info));
        INFO(info.name);
        const char* part = nullptr;
        nn_op_input_t input;
        nn_op_output_t output;
        nn_attribute_info attribute;
        for (int i = 0; i < info.inputs; ++i) REQUIRE_OK(nn_op_input(op, i, &input));
        for (int i = 0; i < info.outputs; ++i) REQUIRE_OK(nn_op_output(op, i, &output));
        for (int i = 0; i < info.attributes; ++i) REQUIRE_OK(nn_op_attribute(op, i, &attribute));
        for (int i = 0; i < info.samples; ++i) REQUIRE_OK(nn_op_sample(op, i, &part));
        CHECK_REFUSED(nn_op_input(op, info.inputs, &input),
                      "input " + std::to_string(info.inputs) + " is outside");
        CHECK_REFUSED(nn_op_output(op, info.outputs, &output),
                      "output " + std::to_string(info.outputs) + " is outside");
        CHECK_REFUSED(nn_op_attribute(op, info.attributes, &attribute),
                      "attribute " + std::to_string(info.attributes) + " is outside");
        CHECK_REFUSED(nn_op_sample(op, info.samples, &part),
                      "sample " + std::to_string(info.samples) + " is outside");
        CHECK(std::strlen(info.doc) > 0);
    }
    for (int kernel = 0; kernel < nn_kernel_count(); ++kernel) {
        nn_kernel_info_t info;
        nn_operand_info operand;
        REQUIRE_OK(nn_kernel_info(kernel, &info));
        INFO(info.name);
        for (int i = 0; i < info.operands; ++i) REQUIRE_OK(nn_kernel_operand(kernel, i, &operand));
        CHECK_REFUSED(nn_kernel_operand(kernel, info.operands, &operand),
                      "operand " + std::to_string(info.operands) + " is outside");
        CHECK_REFUSED(nn_kernel_operand(kernel, -1, &operand), "operand -1 is outside");
    }
}

TEST_CASE("every op has a docstring, and samples for the tests or a reason for none") {
    for (const auto& [name, op] : all_ops()) {
        INFO(name << ": " << op.doc);
        CHECK(op.doc.rfind(name + "(", 0) == 0);
        CHECK(op.doc.find('\n') + 2 < op.doc.size());
        // The samples of an op are those of its gradient too.
        CHECK((!op.samples.empty() || !op.no_samples.empty() || !op.gradient_of.empty()));
        CHECK((op.gradient_of.empty() || find_op(op.gradient_of)));
        CHECK_FALSE(op.outputs.empty());
    }
}

TEST_CASE("an op without a signature is an error that shows its doc") {
    for (const char* doc : {"", "Adds numbers.", "add(a, b)"})
        CHECK_THROWS_WITH(OpRegistrar(Op{.doc = doc}),
                          format("the doc of an op is '%s'; it must begin with NAME(inputs) -> "
                                 "outputs",
                                 doc));
}

TEST_CASE("indices of ops and kernels out of range are errors") {
    const Library library;
    for (int32_t bad : bad_numbers) {
        INFO(bad);
        nn_op_info_t op;
        nn_op_input_t input;
        nn_op_output_t output;
        nn_attribute_info attribute;
        nn_kernel_info_t kernel;
        nn_operand_info operand;
        nn_kernel_stat_t stat;
        const char* name;
        nn_ref out;
        int32_t room = 1;
        const std::string outside = format(" %d is outside [0, ", bad);
        CHECK_REFUSED(nn_op_info(bad, &op), "op" + outside);
        CHECK_REFUSED(nn_op_input(bad, 0, &input), "op" + outside);
        CHECK_REFUSED(nn_op_input(op_index("neg"), bad, &input), "input" + outside);
        CHECK_REFUSED(nn_op_output(bad, 0, &output), "op" + outside);
        CHECK_REFUSED(nn_op_output(op_index("neg"), bad, &output), "output" + outside);
        CHECK_REFUSED(nn_op_attribute(bad, 0, &attribute), "op" + outside);
        CHECK_REFUSED(nn_op_attribute(op_index("full"), bad, &attribute), "attribute" + outside);
        CHECK_REFUSED(nn_op_sample(bad, 0, &name), "op" + outside);
        CHECK_REFUSED(nn_op_sample(op_index("neg"), bad, &name), "sample" + outside);
        CHECK_REFUSED(nn_kernel_info(bad, &kernel), "kernel" + outside);
        CHECK_REFUSED(nn_kernel_operand(bad, 0, &operand), "kernel" + outside);
        CHECK_REFUSED(nn_kernel_stat(bad, &stat), "kernel" + outside);
        CHECK_REFUSED(nn_apply(bad, nullptr, 0, nullptr, 0, &out, &room), "op" + outside);
    }
}

}  // namespace nn::capi_test
