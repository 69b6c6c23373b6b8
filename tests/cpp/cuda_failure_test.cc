// What becomes of a status of CUDA or cuBLASLt that is not success: an error with the call, the
// device and the library's words, from every kernel. Run on the emulated device, with failures on
// purpose.
#include "tests/cpp/kernel_test.h"
#include "tests/emulated/blaslt_twin.h"

using namespace nn;
using namespace nn::test;

namespace {

// The message of a kernel whose n-th call fails; of the first call that succeeds otherwise.
template <class P>
std::string failing(const char* plan, const char* name, const P& params,
                    std::vector<Tile*> operands, Dtype dtype = Dtype::f32) {
    const Variant cuda{emulated_device()->target, dtype, emulated_device()};
    inject_failure(plan);
    announce_call(name);
    const std::string error = run(cuda, name, params, operands);
    inject_failure("");
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

TEST_CASE("more blocks than a launch can have are an error, not a part of the work") {
    Tile y(Dtype::f32, {5, 5, 5});
    const nn_fill_params p{int64_t(1) << 45, 1};
    CHECK(failing("", "fill", p, {&y}) ==
          "CUDA device 0: the launch failed: invalid configuration argument");
}

TEST_CASE("a failure of cuBLASLt becomes an error with its words") {
    Tile a(Dtype::f32, {1, 2}), b(Dtype::f32, {3, 4}), c(Dtype::f32, {0});
    const nn_gemm_params p{1, 1, 2, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    CHECK(failing("gemm", "gemm", p, {&c, &a, &b, nullptr, nullptr})
              .find("CUDA device 0: cublasLt") == 0);
    CHECK(failing("", "gemm", p, {&c, &a, &b, nullptr, nullptr}) == "");
    CHECK(c[0] == 11);
}

namespace {

// Lets each status of a call fail, one after the other, and then none: every failure is an error
// that begins like `start`, and the next call is as if nothing had been. Returns how many there
// are.
template <class P>
int fail_each_status(const char* name, const P& params, const std::vector<Tile*>& operands,
                     const std::string& start, Dtype dtype = Dtype::f32) {
    for (int k = 1; k <= 100; ++k) {
        const std::string plan = std::string(name) + ":1:status:" + std::to_string(k);
        const std::string error = failing(plan.c_str(), name, params, operands, dtype);
        if (error.empty()) return k - 1;
        INFO(plan << ": " << error);
        CHECK(error.find(start) == 0);
        CHECK(error.find(" failed: ") != std::string::npos);
        CHECK(failing("", name, params, operands, dtype) == "");
    }
    FAIL(name << " fails without being told to");
    return 0;
}

}  // namespace

TEST_CASE("each status of cuBLASLt that fails is one error, and the product is tried again") {
    const size_t n = 8;
    Tile a(Dtype::f32, Values(n * n, 1)), b(Dtype::f32, Values(n * n, 2)),
        c(Dtype::f32, Values(n * n)), bias(Dtype::f32, Values(n, 3)),
        aux(Dtype::f32, Values(n * n));
    const std::vector<Tile*> operands{&c, &a, &b, &bias, &aux};
    nn_gemm_params p{n, n, n, n, n, n, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0};
    // A failure while the product is described leaves no plan behind, so each comes at a first
    // call.
    int described = 0;
    for (std::string error; described < 100; ++described, ++p.lda) {  // another plan each time
        const std::string plan = "gemm:1:status:" + std::to_string(described + 1);
        Tile wide(Dtype::f32, Values(size_t(n * p.lda), 1));
        error = failing(plan.c_str(), "gemm", p, {&c, &wide, &b, &bias, &aux});
        if (error.empty()) break;
        INFO(plan << ": " << error);
        CHECK(error.find("CUDA device 0: cublasLt") == 0);
        CHECK(failing("", "gemm", p, {&c, &wide, &b, &bias, &aux}) == "");
        CHECK(aux[0] == Approx(19));
    }
    CHECK(described >= 15);
    // Once it is known, only the pointers and the product itself are left.
    p.lda = n;
    CHECK(failing("", "gemm", p, operands) == "");
    CHECK(fail_each_status("gemm", p, operands, "CUDA device 0: cublasLtMatmul") == 3);
    // Behind it comes what widens column sums of bf16.
    const Values ones(n * n, 1);
    Tile d(Dtype::bf16, Values(n * n)), e(Dtype::bf16, ones), f(Dtype::bf16, ones),
        sums(Dtype::f32, Values(n)), pre(Dtype::bf16, Values(n * n));
    p.epilogue = 3;
    const std::vector<Tile*> backward{&d, &e, &f, &sums, &pre};
    CHECK(failing("", "gemm_dgelu", p, backward, Dtype::bf16) == "");
    CHECK(sums[0] == n * n * 0.5);
    CHECK(fail_each_status("gemm_dgelu", p, backward, "CUDA device 0: ", Dtype::bf16) == 4);
}

TEST_CASE("what describes a product is put to cuBLASLt itself, where that is installed") {
    using emulated::LtTwin;
    const LtTwin twin = LtTwin::product(68, 0);  // CUBLAS_COMPUTE_32F, CUDA_R_32F
    const int32_t epilogue = 64 | 128 | 16;      // CUBLASLT_EPILOGUE_DGELU_BGRAD
    CHECK_FALSE(twin.refused());
    CHECK(twin.set(7, &epilogue, sizeof epilogue));
    if (!LtTwin::installed()) {
        WARN("cuBLASLt is not installed, and was not asked");
        return;
    }
    CHECK_FALSE(twin.set(7, &epilogue, 3));
    CHECK_FALSE(twin.set(9999, &epilogue, sizeof epilogue));
}

TEST_CASE("each launch and each call of the CUDA runtime that fails is one error") {
    Tile x(Dtype::f32, Values(5000, 1)), y(Dtype::f32, Values(5)), sum(Dtype::f64, {0});
    CHECK(fail_each_status("column_sum", nn_column_sum_params{1000, 5, 1}, {&y, &x},
                           "CUDA device 0: the launch failed: ") == 2);
    CHECK(y[0] == 1000);
    CHECK(fail_each_status("sumsq", nn_sumsq_params{5000, 1}, {&sum, &x},
                           "CUDA device 0: the launch failed: ") == 2);
    CHECK(sum[0] == 5000);
    Tile index(Dtype::i64, {0, 1}), dx(Dtype::f32, Values(3)), dy(Dtype::f32, {4, 5});
    CHECK(fail_each_status("scatter_add", nn_gather_params{1, 3, 2, 1, int32_t(Dtype::i64)},
                           {&dx, &dy, &index}, "CUDA device 0: ") == 2);
    CHECK(dx.values() == Values{4, 5, 0});
}

TEST_CASE("every kernel of the CPU has its CUDA form, with the same declaration") {
    for (const Kernel* kernel : all_kernels()) {
        if (kernel->name.rfind("test_", 0) == 0) continue;  // made by other tests
        INFO(kernel->name);
        CHECK(kernel->on(*emulated_device()->target));
    }
}

TEST_CASE("a failure on purpose names an existing kernel and a call") {
    CHECK_THROWS_AS(inject_failure("gem:1"), std::runtime_error);
    CHECK_THROWS_AS(inject_failure("gemm:0"), std::runtime_error);
    inject_failure("");
}
