// Every failed status of CUDA and cuBLASLt becomes an error with the call, the device and the
// library's message. Runs on the emulated device with injected failures.
#include "kernels/params/fill.h"
#include "kernels/params/gather.h"
#include "kernels/params/gelu.h"
#include "kernels/params/gemm.h"
#include "kernels/params/optimizer.h"
#include "tests/cpp/kernel_test.h"
#include "tests/emulated/blaslt_twin.h"

using namespace nn;
using namespace nn::test;

namespace {

// The error of a call with an injected failure, or "".
template <class P>
std::string failing(const char* failure, const char* name, const P& params,
                    std::vector<Tile*> operands, Dtype dtype = Dtype::f32) {
    const Variant cuda{emulated_device()->target, dtype, emulated_device()};
    inject_failure(failure);
    announce_call(name);
    const std::string error = run(cuda, name, params, operands);
    inject_failure("");
    take_failure();
    return error;
}

}  // namespace

TEST_CASE("a failed launch is an error with the device and CUDA's message") {
    Tile y(Dtype::f32, {0, 0, 0});
    const nn_fill_params p{3, 1};
    CHECK(failing("fill:1", "fill", p, {&y}) ==
          "CUDA device 0: the launch failed: unspecified launch failure");
    CHECK(failing("fill:2", "fill", p, {&y}) == "");
    CHECK(failing("cast", "fill", p, {&y}) == "");
}

TEST_CASE("more blocks than a launch can have are an error") {
    Tile y(Dtype::f32, {5, 5, 5});
    const nn_fill_params p{int64_t(1) << 45, 1};
    CHECK(failing("", "fill", p, {&y}) ==
          "CUDA device 0: the launch failed: invalid configuration argument");
}

TEST_CASE("a failure of cuBLASLt is an error with its message") {
    Tile a(Dtype::f32, {1, 2}), b(Dtype::f32, {3, 4}), c(Dtype::f32, {0});
    const nn_gemm_params p{1, 1, 2, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
    CHECK(failing("gemm", "gemm", p, {&c, &a, &b, nullptr, nullptr})
              .find("CUDA device 0: cublasLt") == 0);
    CHECK(failing("", "gemm", p, {&c, &a, &b, nullptr, nullptr}) == "");
    CHECK(c[0] == 11);
}

namespace {

// Makes each status of a call fail, one at a time. Every failure is an error that begins with
// `start`, and the next call succeeds. Returns the number of statuses.
template <class P>
int fail_each_status(const char* name, const P& params, const std::vector<Tile*>& operands,
                     const std::string& start, Dtype dtype = Dtype::f32) {
    for (int k = 1; k <= 100; ++k) {
        const std::string failure = std::string(name) + ":1:status:" + std::to_string(k);
        const std::string error = failing(failure.c_str(), name, params, operands, dtype);
        if (error.empty()) return k - 1;
        INFO(failure << ": " << error);
        CHECK(error.find(start) == 0);
        CHECK(error.find(" failed: ") != std::string::npos);
        CHECK(failing("", name, params, operands, dtype) == "");
    }
    FAIL(name << " fails more than 100 times");
    return 0;
}

}  // namespace

TEST_CASE("each failed status of cuBLASLt is one error, and the next call succeeds") {
    const size_t n = 8;
    Tile a(Dtype::bf16, Values(n * n, 1)), b(Dtype::bf16, Values(n * n, 2)),
        c(Dtype::bf16, Values(n * n)), bias(Dtype::bf16, Values(n, 3)),
        aux(Dtype::bf16, Values(n * n));
    const std::vector<Tile*> operands{&c, &a, &b, &bias, &aux};
    nn_gemm_params p{n, n, n, n, n, n, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0};
    // A failed description of a product is not kept, so the next call describes it again.
    int described = 0;
    for (std::string error; described < 100; ++described, ++p.lda) {  // another product each time
        const std::string failure = "gemm:1:status:" + std::to_string(described + 1);
        Tile wide(Dtype::bf16, Values(size_t(n * p.lda), 1));
        error = failing(failure.c_str(), "gemm", p, {&c, &wide, &b, &bias, &aux}, Dtype::bf16);
        if (error.empty()) break;
        INFO(failure << ": " << error);
        CHECK(error.find("CUDA device 0: cublasLt") == 0);
        CHECK(failing("", "gemm", p, {&c, &wide, &b, &bias, &aux}, Dtype::bf16) == "");
        CHECK(aux[0] == Approx(19));
    }
    CHECK(described >= 15);
    // A known product only sets pointers and multiplies.
    p.lda = n;
    CHECK(failing("", "gemm", p, operands, Dtype::bf16) == "");
    CHECK(fail_each_status("gemm", p, operands, "CUDA device 0: cublasLtMatmul", Dtype::bf16) == 3);
    // Slopes take kernels of their own.
    const Values ones(n * n, 1);
    Tile d(Dtype::bf16, Values(n * n)), e(Dtype::bf16, ones), f(Dtype::bf16, ones),
        sums(Dtype::f32, Values(n)), pre(Dtype::bf16, Values(n * n));
    p.epilogue = 3;
    const std::vector<Tile*> backward{&d, &e, &f, &sums, &pre};
    CHECK(failing("", "gemm_dgelu", p, backward, Dtype::bf16) == "");
    CHECK(sums[0] == n * n * 0.5);
    CHECK(fail_each_status("gemm_dgelu", p, backward, "CUDA device 0: ", Dtype::bf16) == 3);
    Tile dx(Dtype::bf16, Values(2 * n * n)), x(Dtype::bf16, Values(2 * n * n, 1)),
        both(Dtype::f32, Values(2 * n));
    p.epilogue = 4, p.ldc = 2 * n;
    const std::vector<Tile*> gated{&dx, &e, &f, &both, &x};
    CHECK(failing("", "gemm_dglu", p, gated, Dtype::bf16) == "");
    CHECK(both[n] == Approx(n * n * 0.7310586).epsilon(0.01));
    CHECK(fail_each_status("gemm_dglu", p, gated, "CUDA device 0: ", Dtype::bf16) == 3);
}

TEST_CASE("cuBLASLt, if installed, checks the descriptors of products") {
    using emulated::LtTwin;
    const LtTwin twin = LtTwin::product(68, 0);  // CUBLAS_COMPUTE_32F, CUDA_R_32F
    const int32_t epilogue = 32 | 128 | 4;       // CUBLASLT_EPILOGUE_GELU_AUX_BIAS
    CHECK_FALSE(twin.rejected());
    CHECK(twin.set(7, &epilogue, sizeof epilogue));
    if (!LtTwin::installed()) {
        WARN("cuBLASLt is not installed");
        return;
    }
    CHECK_FALSE(twin.set(7, &epilogue, 3));
    CHECK_FALSE(twin.set(9999, &epilogue, sizeof epilogue));
}

TEST_CASE("each failed launch and each failed call of the CUDA runtime is one error") {
    Tile x(Dtype::f32, Values(5000, 1)), y(Dtype::f32, Values(5)), sum(Dtype::f64, {0});
    CHECK(fail_each_status("column_sum", nn_column_sum_params{1000, 5, 1}, {&y, &x},
                           "CUDA device 0: the launch failed: ") == 2);
    CHECK(y[0] == 1000);
    CHECK(fail_each_status("sumsq", nn_sumsq_params{5000, 1}, {&sum, &x},
                           "CUDA device 0: the launch failed: ") == 2);
    CHECK(sum[0] == 5000);
    Tile index(Dtype::i64, {0, 1}), dx(Dtype::f32, Values(3)), dy(Dtype::f32, {4, 5});
    CHECK(fail_each_status("scatter_add", nn_gather_params{1, 3, 2, 1, int32_t(Dtype::i64), 0},
                           {&dx, &dy, &index}, "CUDA device 0: ") == 2);
    CHECK(dx.values() == Values{4, 5, 0});
}

TEST_CASE("every kernel has a CUDA implementation") {
    for (const Kernel* kernel : all_kernels()) {
        if (kernel->name.rfind("test_", 0) == 0) continue;  // of other tests
        INFO(kernel->name);
        CHECK(kernel->on(*emulated_device()->target));
    }
}

TEST_CASE("an injected failure names an existing kernel and a call") {
    CHECK_THROWS_AS(inject_failure("gem:1"), std::runtime_error);
    CHECK_THROWS_AS(inject_failure("gemm:0"), std::runtime_error);
    inject_failure("");
}
