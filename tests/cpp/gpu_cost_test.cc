// The cost model of kernels on GPUs, against times by hand.
#include <cstring>

#include "engine/graph/cost.h"
#include "engine/graph/task.h"
#include "kernels/params/attention.h"
#include "kernels/params/gemm.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

// 100 multiprocessors, each of 1 TFLOP/s in bf16 and half of that in TF32; copies at 2 TB/s.
constexpr Rates rates = {1e13, 1e13, 1e14, 5e13, 2e12, 5e-6, 100};

template <class P>
double seconds(const char* kernel, const P& params, double flops, double bytes,
               Dtype dtype = Dtype::bf16) {
    TaskArg arg{};
    arg.kernel = find_kernel(kernel), arg.dtype = dtype;
    arg.flops = float(flops), arg.bytes = float(bytes);
    std::memcpy(arg.params, &params, sizeof params);
    return seconds_of(arg, rates) - rates.start;
}

double product(int64_t m, int64_t n, int64_t k, int32_t epilogue = 0) {
    nn_gemm_params p{};
    p.m = m, p.n = n, p.k = k, p.batch = 1, p.epilogue = epilogue;
    return seconds(epilogue ? "gemm_dgelu" : "gemm", p, 2.0 * double(m * n) * double(k),
                   2.0 * double(m * n + m * k + n * k));
}

// The tasks of one kernel that f records.
std::vector<Task> recorded(const std::string& kernel, const std::vector<Tensor>& inputs,
                           const Function& f) {
    const std::shared_ptr<Replay> program = compile(inputs, f);
    std::vector<Task> out;
    for (const Task& task : program->program().tasks)
        if (task.arg.kernel->name == kernel) out.push_back(task);
    return out;
}

}  // namespace

TEST_CASE("a product on a GPU takes whole turns of its multiprocessors, and stores its blocks") {
    constexpr int64_t depth = 2000;
    const double turn = 2.0 * 128 * 256 * depth / 1e12;
    const auto stored = [](int64_t rows) { return 2.0 * double(rows) * 256 / 2e12; };
    CHECK(product(128 * 100, 256, depth) == Approx(turn + stored(12800)));
    CHECK(product(128 * 300, 256, depth) == Approx(3 * turn + stored(38400)));
    // Another block takes another turn, if only of smaller blocks.
    const double more = product(128 * 100 + 1, 256, depth);
    CHECK(more > 1.1 * product(128 * 100, 256, depth));
    CHECK(more <= 2 * turn + stored(12801));
    // The slopes of GELU are a kernel that moves three times the result.
    CHECK(product(128 * 100, 256, depth, 3) == Approx(turn + stored(12800) * (1 + 3 / 0.75)));
}

TEST_CASE("the gradient of a weight has few blocks on a GPU, so its sums are split") {
    const double ideal = 2.0 * 768 * 768 * 16384 / 1e14;
    const double split = product(768, 768, 16384);
    CHECK(split > ideal);
    CHECK(split < 1.6 * ideal);                       // 18 blocks would take 5.6 times as long
    CHECK(product(768, 768, 128) > 2 * ideal / 128);  // nothing to split
}

TEST_CASE("attention on a GPU reaches the share of products that its kernels do") {
    const auto attention = [](bool backward, int64_t head_dim, int32_t backend, Dtype dtype) {
        nn_attention_params p{};
        p.head_dim = head_dim, p.backend = backend;
        return seconds(backward ? "attention_backward" : "attention", p, 1e12, 1e9, dtype) * 1e2;
    };
    for (bool backward : {false, true}) {
        const auto share = [&](int64_t head_dim, int32_t backend, Dtype dtype = Dtype::bf16) {
            return 1 / attention(backward, head_dim, backend, dtype);
        };
        CHECK(share(64, nn_attention_auto) == Approx(backward ? 0.23 : 0.36));
        CHECK(share(128, nn_attention_auto) == Approx(backward ? 0.3 : 0.6));
        CHECK(share(128, nn_attention_cudnn) == Approx(backward ? 0.47 : 0.6));
        CHECK(share(128, nn_attention_nnlua) == Approx(backward ? 0.15 : 0.22));
        CHECK(share(80, nn_attention_auto) == share(80, nn_attention_nnlua));
        CHECK(share(64, nn_attention_auto, Dtype::f32) < 0.1 * share(64, nn_attention_nnlua));
    }
}

TEST_CASE("other kernels on a GPU take the time of their bytes") {
    CHECK(seconds("layernorm", 0, 1e12, 3e9) == Approx(3e9 / (0.75 * 2e12)));
    nn_gemm_params few{};  // rows of generated tokens: bound by reading the weight
    few.m = 1, few.n = 1 << 14, few.k = 1 << 10, few.batch = 1;
    CHECK(seconds("gemm", few, 2e7, 3.2e10) == Approx(3.2e10 / (0.75 * 2e12)));
}

TEST_CASE("tasks count the bytes that they move, not those of their tiles") {
    const Session session;
    const Tensor x = filled(grid_of({64, 96}, {64, 32}), Dtype::f32, 1);
    double copied = 0;
    for (const Task& task : recorded("copy", {x}, [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{retile(in[0], Grid::whole({64, 96}))};
         }))
        copied += double(task.arg.bytes);
    CHECK(copied == 2 * 64 * 96 * 4);

    const Tensor table = filled(Grid::whole({5000, 8}), Dtype::f32, 1);
    const Tensor ids = numbered_tensor(Grid::whole({2, 3}));
    const auto lookups = recorded("embedding", {table, ids}, [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{op("embedding", {in[1], in[0], {}}, std::vector<Value>(1))};
    });
    REQUIRE(lookups.size() == 1);
    CHECK(lookups[0].arg.bytes == 2 * 6 * 8 * 4);
}

TEST_CASE("nothing is compiled for the length of a prompt") {
    const Session session;
    const auto backend = [](int64_t tokens, bool prompt) {
        const Tensor qkv = filled(Grid::whole({1, tokens, 3 * 64}), Dtype::bf16, 1);
        const auto tasks = recorded("attention", {qkv}, [=](const std::vector<Tensor>& in) {
            std::vector<Value> attributes(10);
            attributes.front() = number(1), attributes.back() = number(prompt);
            return std::vector<Tensor>{op("attention", {in[0], {}, {}}, attributes)};
        });
        nn_attention_params p{};
        REQUIRE(tasks.size() == 1);
        std::memcpy(&p, tasks[0].arg.params, sizeof p);
        return p.backend;
    };
    CHECK(backend(100, true) == nn_attention_nnlua);
    CHECK(backend(128, true) == nn_attention_auto);
    CHECK(backend(100, false) == nn_attention_auto);
    settings().attention = nn_attention_cudnn;
    CHECK(backend(100, true) == nn_attention_cudnn);
    settings().attention = nn_attention_auto;
}

}  // namespace nn::engine_test
