// The cost model of kernels on GPUs, against times by hand; the bytes that tasks count; the kernels
// for prompts, and the tiles of weights on GPUs.
#include <algorithm>
#include <cstring>

#include "engine/graph/cost.h"
#include "engine/graph/task.h"
#include "engine/machine/description.h"
#include "kernels/params/attention.h"
#include "kernels/params/gemm.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

// 100 multiprocessors, each of 1 TFLOP/s in bf16 and half of that in TF32; copies at 2 TB/s.
constexpr Rates rates = {1e13, 1e13, 1e14, 5e13, 2e12, 5e-6, 100};

template <class P>
TaskArg arg_of(const char* kernel, const P& params, double flops, double bytes,
               Dtype dtype = Dtype::bf16) {
    TaskArg arg{};
    arg.kernel = find_kernel(kernel), arg.dtype = dtype;
    arg.flops = float(flops), arg.bytes = float(bytes);
    std::memcpy(arg.params, &params, sizeof params);
    return arg;
}

template <class P> double seconds(const char* kernel, const P& params, double flops, double bytes) {
    return seconds_of(arg_of(kernel, params, flops, bytes), rates) - rates.start;
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

TEST_CASE("a product on a GPU takes whole waves of blocks, and stores its result") {
    constexpr int64_t depth = 2000;
    const double wave = 2.0 * 128 * 256 * depth / 1e12;
    const auto stored = [](int64_t rows) { return 2.0 * double(rows) * 256 / 2e12; };
    CHECK(product(128 * 100, 256, depth) == Approx(wave + stored(12800)));
    CHECK(product(128 * 300, 256, depth) == Approx(3 * wave + stored(38400)));
    // One more row takes another wave, if only of smaller blocks.
    const double more = product(128 * 100 + 1, 256, depth);
    CHECK(more > 1.1 * product(128 * 100, 256, depth));
    CHECK(more <= 2 * wave + stored(12801));
    // The slopes of GELU are a kernel that moves three times the result.
    CHECK(product(128 * 100, 256, depth, 3) == Approx(wave + stored(12800) * (1 + 3 / 0.75)));
}

TEST_CASE("the gradient of a weight has few blocks on a GPU, so its sums are split") {
    const double ideal = 2.0 * 768 * 768 * 16384 / 1e14;
    const double split = product(768, 768, 16384);
    CHECK(split > ideal);
    CHECK(split < 1.6 * ideal);                       // 18 blocks would take 5.6 times as long
    CHECK(product(768, 768, 128) > 2 * ideal / 128);  // nothing to split
}

TEST_CASE("attention on a GPU takes the time of the kernels that compute it") {
    struct Case {
        int64_t head_dim = 64, q_start = 0;
        int32_t backend = nn_attention_auto;
        double dropout = 0;
        Dtype dtype = Dtype::bf16;
        bool bias = false;
    };
    // Of the rate of products in bf16.
    const auto share = [](bool backward, const Case& c) {
        nn_attention_params p{};
        p.head_dim = c.head_dim, p.backend = c.backend, p.dropout = c.dropout;
        p.q_len = p.k_len = 1024, p.q_start = c.q_start, p.first = p.last = 1;
        p.first_q = p.first_kv = 1;
        TaskArg arg = arg_of(backward ? "attention_backward" : "attention", p, 1e12, 1e9, c.dtype);
        std::fill_n(arg.buffer_of, max_operands, int16_t(-1));
        if (c.bias) arg.buffer_of[backward ? 8 : 6] = 0;
        return 1e12 / (seconds_of(arg, rates) - rates.start) / rates.bf16;
    };
    for (bool backward : {false, true}) {
        const double ours = backward ? 0.13 : 0.18, others = 0.2 * rates.f32 / rates.bf16;
        CHECK(share(backward, {}) == Approx(backward ? 0.23 : 0.36));
        CHECK(share(backward, {.head_dim = 128}) == Approx(backward ? 0.3 : 0.6));
        CHECK(share(backward, {.head_dim = 128, .backend = nn_attention_cudnn}) ==
              Approx(backward ? 0.47 : 0.6));
        CHECK(share(backward, {.head_dim = 128, .backend = nn_attention_nnlua}) ==
              Approx(backward ? 0.15 : 0.22));
        CHECK(share(backward, {.q_start = 1024}) == Approx(ours));
        CHECK(share(backward, {.dropout = 0.1}) == Approx(ours));
        CHECK(share(backward, {.head_dim = 80}) == Approx(others));
        CHECK(share(backward, {.dtype = Dtype::f32}) == Approx(others));
        CHECK(share(backward, {.bias = true}) == Approx(others));
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

    const Tensor dy = filled(Grid::whole({2, 3, 8}), Dtype::f32, 1);
    const auto added =
        recorded("embedding_backward", {dy, ids, table}, [](const std::vector<Tensor>& in) {
            return std::vector<Tensor>{
                op("embedding_backward", {in[0], in[1], in[2], {}, {}, {}}, std::vector<Value>(1))};
        });
    REQUIRE(added.size() == 1);
    CHECK(added[0].arg.bytes == 3 * 6 * 8 * 4 + 5000 * 8 * 4);  // rows, and all zeros first
}

TEST_CASE("prompts of other lengths than multiples of 64 use our attention kernels") {
    const Session session;
    const auto backend = [](int64_t tokens, bool prompt) {
        const Tensor qkv = filled(Grid::whole({1, tokens, 3 * 64}), Dtype::bf16, 1);
        const auto tasks = recorded("attention", {qkv}, [=](const std::vector<Tensor>& in) {
            std::vector<Value> attributes(10);
            attributes.front() = number(1), attributes.back() = number(prompt);
            return std::vector<Tensor>{op("attention", {in[0], {}, {}}, attributes)};
        });
        REQUIRE(tasks.size() == 1);
        return params_of<nn_attention_params>(tasks[0].arg).backend;
    };
    CHECK(backend(100, true) == nn_attention_nnlua);
    CHECK(backend(128, true) == nn_attention_auto);
    CHECK(backend(16385, true) == nn_attention_auto);
    CHECK(backend(100, false) == nn_attention_auto);
    settings().attention = nn_attention_cudnn;
    CHECK(backend(100, true) == nn_attention_cudnn);
    settings().attention = nn_attention_auto;
}

TEST_CASE("weights are cut less on GPUs with much memory") {
    const auto tiles = [](const Dims& shape, const char* description) {
        describe_machine(description);
        const int64_t out = choose_grid(shape, Dtype::bf16, {}).tiles();
        describe_machine("");
        return out;
    };
    const Dims gate_and_up = {22016, 4096};  // of a Llama of 7B, 180 MB
    CHECK(tiles(gate_and_up, "cpus=2") == 6);
    CHECK(tiles(gate_and_up, "cpus=2 gpus=1 gpu_memory=80GB") == 1);
    CHECK(tiles(gate_and_up, "cpus=2 gpus=1 gpu_memory=72GB") == 1);
    CHECK(tiles(gate_and_up, "cpus=2 gpus=1 gpu_memory=24GB") == 6);
    CHECK(tiles(gate_and_up, "cpus=2 gpus=8 gpu_memory=24GB") == 6);
    CHECK(tiles({57344, 8192}, "cpus=2 gpus=1 gpu_memory=80GB") == 7);  // of 70B, 940 MB
    for (const int64_t tier : {int64_t(0), int64_t(2) << 30}) {
        settings().gpu_tier = tier;
        CHECK(tiles(gate_and_up, "cpus=2 gpus=1 gpu_memory=80GB") == 6);
    }
    settings().gpu_tier = -1;
}

}  // namespace nn::engine_test
