// Plans in the C API: marks of a step and its microbatches, kinds of tensors, and the result.
#include "tests/cpp/capi_test.h"

namespace nn::capi_test {
namespace {

TEST_CASE("a plan covers what follows the mark of the step, by kind") {
    const Library library;
    nn_ref weight, program, result;
    REQUIRE_OK(nn_record_begin());
    weight = full({1000}, 3);
    REQUIRE_OK(nn_tensor_kind(&weight, 1));
    REQUIRE_OK(nn_record_step(&weight, 1));
    REQUIRE_OK(nn_record_microbatch(1));
    result = neg(neg(weight));
    REQUIRE_OK(nn_record_end(nullptr, 0, &result, 1, &program));
    nn_program_plan_t plan{};
    nn_rank_plan_t of_rank{};
    int32_t ranks = 1;
    REQUIRE_OK(nn_program_plan(&program, 0, 3, &plan, &of_rank, &ranks));
    CHECK(plan.tasks == 2);
    CHECK(plan.flops == 2000);
    CHECK(plan.kinds[1] == 8192);
    CHECK(plan.lasting == 16384);
    CHECK(plan.peak == 24576);
    CHECK(plan.kinds[0] + plan.kinds[1] == plan.peak);
    CHECK(plan.seconds > 0);
    CHECK(plan.busy > 0);
    CHECK(plan.workers >= 1);
    CHECK(ranks == 1);
    CHECK(of_rank.peak == plan.peak);
    CHECK(of_rank.sent + of_rank.received == 0);
    REQUIRE_OK(nn_program_plan(&program, 1, 3, &plan, &of_rank, &ranks));
    CHECK(plan.peak == 24576);
    CHECK_REFUSED(nn_program_plan(&program, 0, 0, &plan, &of_rank, &ranks), "0 steps, not 1 to 9");
    CHECK_REFUSED(nn_program_run(&program, nullptr, 0, &result, 1), "a plan, which cannot run");
}

TEST_CASE("marks outside a recording, unknown kinds and stale programs are refused") {
    const Library library;
    const nn_ref x = full({2}, 1);
    nn_program_plan_t plan;
    nn_rank_plan_t of_rank;
    int32_t ranks = 1;
    CHECK_REFUSED(nn_record_step(nullptr, 0), "no recording is under way");
    CHECK_REFUSED(nn_record_microbatch(1), "no recording is under way");
    CHECK_REFUSED(nn_tensor_kind(&x, 6), "tensor kind 6 is outside [0, 6)");
    CHECK_REFUSED(nn_tensor_kind(&x, -1), "tensor kind -1 is outside [0, 6)");
    CHECK_REFUSED(nn_tensor_kind(nullptr, 1), "tensor is NULL");
    CHECK_REFUSED(nn_program_plan(&x, 0, 3, &plan, &of_rank, &ranks), "not a live program");
    CHECK_REFUSED(nn_program_plan(nullptr, 0, 3, &plan, &of_rank, &ranks), "program is NULL");
    REQUIRE_OK(nn_record_begin());
    CHECK_REFUSED(nn_record_microbatch(0), "0 tiles");
    REQUIRE_OK(nn_record_abort());
}

}  // namespace
}  // namespace nn::capi_test
