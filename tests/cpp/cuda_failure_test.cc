// What becomes of a status of CUDA or cuBLASLt that is not success: an error with the call, the
// device and the library's words, from every kernel. Run on the emulated device, with failures on
// purpose.
#include "tests/cpp/kernel_test.h"

using namespace nn;
using namespace nn::test;

namespace {

// The message of a kernel whose n-th call fails; of the first call that succeeds otherwise.
template <class P>
std::string failing(const char* plan, const char* name, const P& params,
                    std::vector<Tile*> operands) {
    const Variant cuda{Isa::baseline, Dtype::f32, emulated_device()};
    plan_failure(plan);
    announce_call(name);
    const std::string error = run(cuda, name, params, operands);
    plan_failure("");
    take_failure();
    return error;
}

}  // namespace

TEST_CASE("a launch that fails becomes an error with the device and CUDA's words") {
    Tile y(Dtype::f32, {0, 0, 0});
    const nn_fill_params p{3, 1};
    CHECK(failing("fill:1", "fill", p, {&y}) ==
          "CUDA device 0: the launch failed: unspecified launch failure");
    CHECK(failing("fill:2", "fill", p, {&y}) == "");
    CHECK(failing("cast", "fill", p, {&y}) == "");
}

TEST_CASE("a failure of cuBLASLt becomes an error with its words") {
    Tile a(Dtype::f32, {1, 2}), b(Dtype::f32, {3, 4}), c(Dtype::f32, {0});
    const nn_gemm_params p{1, 1, 2, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    CHECK(failing("gemm", "gemm", p, {&c, &a, &b, nullptr, nullptr})
              .find("CUDA device 0: cublasLt") == 0);
    CHECK(failing("", "gemm", p, {&c, &a, &b, nullptr, nullptr}) == "");
    CHECK(c[0] == 11);
}

TEST_CASE("every kernel of the CPU has its CUDA form, with the same declaration") {
    for (const Kernel* kernel : all_kernels()) {
        if (kernel->name.rfind("test_", 0) == 0) continue;  // made by other tests
        INFO(kernel->name);
        CHECK(emulated_device()->kernel(kernel->name));
    }
}

TEST_CASE("a failure on purpose names an existing kernel and a call") {
    CHECK_THROWS_AS(plan_failure("gem:1"), std::runtime_error);
    CHECK_THROWS_AS(plan_failure("gemm:0"), std::runtime_error);
    plan_failure("");
}
