// Attention by cuDNN, which the emulated device imitates.
#include "tests/cpp/attention_reference.h"

using namespace nn;
using namespace nn::test;

namespace {
Variant emulated_bf16() { return {find_target("emulated"), Dtype::bf16, emulated_device()}; }
void skip() { std::puts("skipped: this build has no emulated device"); }
}  // namespace

TEST_CASE("attention by cuDNN agrees with the formula, in one chunk and in several", "[sweep]") {
    Random random(8);
    each_variant(
        [&](const Variant& v) {
            if (!v.cuda || !v.cuda->gpu.cudnn) return;
            for (int32_t backend : {int32_t(nn_attention_auto), int32_t(nn_attention_cudnn)}) {
                check_tiled(v, {{2, 4, 2, 64, 60, true, 0, backend}, 60}, random);
                check_tiled(v, {{5, 2, 2, 64, 70, true, 0, backend}, 70}, random);
                check_tiled(v, {{1, 9, 3, 64, 100, true, 0, backend}, 100}, random);
                check_tiled(v, {{2, 2, 2, 64, 90, true, 0, backend}, 64}, random);
            }
            check_tiled(v, {{1, 2, 1, 128, 50, false}, 50}, random);
            check_tiled(v, {{1, 2, 1, 64, 90, false}, 64}, random);
        },
        {Dtype::bf16});
    const Variant emulated = emulated_bf16();
    if (!emulated.cuda) return skip();
    // The emulated cuDNN needs 8 KB per query and head; the workspace has 4 MB.
    const auto runs = [&](const Shape& s, int64_t tile) {
        const int64_t before = cudnn_executions();
        check_tiled(emulated, {s, tile}, random);
        return cudnn_executions() - before;
    };
    CHECK(runs({2, 4, 2, 64, 60, true}, 60) == 2);    // 480 queries in one chunk
    CHECK(runs({5, 2, 2, 64, 70, true}, 70) == 4);    // 3 and 2 sequences
    CHECK(runs({1, 9, 3, 64, 100, true}, 100) == 6);  // 3 heads at a time
    CHECK(runs({2, 2, 2, 64, 90, true}, 64) == 2);    // the first pair of tiles
    CHECK(runs({2, 2, 2, 32, 60, true}, 60) == 0);
    CHECK(runs({2, 2, 2, 64, 60, true, 0.1}, 60) == 0);
    CHECK(runs({2, 2, 2, 64, 60, true, 0, nn_attention_nnlua}, 60) == 0);
    CHECK(runs({1, 1, 1, 64, 210, true}, 210) == 0);  // no kernel for this length
}

TEST_CASE("each failed status of cuDNN is one error, and the next call succeeds") {
    const Variant emulated = emulated_bf16();
    if (!emulated.cuda) return skip();
    Random random(9);
    const Shape s{1, 1, 1, 64, 3, true};
    Tile qkv = emulated.tile(random.values(s.len * s.width())),
         dout = emulated.tile(random.values(s.len * s.dim)), o = emulated.output(dout.size()),
         stats = emulated.sum_output(size_t(s.len * 2)), dqkv = emulated.output(qkv.size());
    const std::vector<Tile*> forward{&o, nullptr, &stats, &qkv, &qkv, nullptr, nullptr},
        backward{&dqkv, &dqkv, &qkv, &qkv, &o, &dout, &stats, nullptr, nullptr, nullptr};
    const auto failing = [&](const std::string& status, const nn_attention_params& p,
                             const char* name, const std::vector<Tile*>& operands) {
        inject_failure((std::string(name) + ":1:status:" + status).c_str());
        announce_call(name);
        const std::string error = run(emulated, name, p, operands);
        inject_failure("");
        take_failure();
        return error;
    };
    for (const char* name : {"attention", "attention_backward"}) {
        const auto& operands = name == std::string("attention") ? forward : backward;
        nn_attention_params p = params(s);
        int failures = 0, later = 0;
        // A failed plan is not kept; once there is one, only the execution can fail.
        for (std::string error = "-"; !error.empty(); ++failures) {
            error = failing(std::to_string(failures + 1), p, name, operands);
            if (error.empty()) break;
            INFO(name << ", status " << failures + 1 << ": " << error);
            const bool known = error.find("CUDA device 0: cudnn") == 0 ||
                               error.find("CUDA device 0: the launch failed: ") == 0;
            CHECK(known);
        }
        CHECK(failures > 150);
        for (; !failing(std::to_string(later + 1), p, name, operands).empty(); ++later) {
        }
        CHECK(later == 8);
    }
    check_close("o", tokens(o.values(), s, 0, 3), reference(s, qkv.values(), {}).o, 0.01);
}

TEST_CASE("a call for cuDNN without cuDNN is an error") {
    const Variant emulated = emulated_bf16();
    if (!emulated.cuda) return skip();
    CudaDevice without = *emulated.cuda;
    without.gpu.cudnn = nullptr;
    const Variant v{emulated.target, Dtype::bf16, &without};
    Random random(10);
    const Shape s{1, 1, 1, 64, 5, true, 0, nn_attention_cudnn};
    Tile qkv = v.tile(random.values(s.len * s.width())), o = v.output(size_t(s.len * s.dim)),
         stats = v.sum_output(size_t(s.len * 2));
    const auto attend = [&](const Shape& shape) {
        return run(v, "attention", params(shape),
                   {&o, nullptr, &stats, &qkv, &qkv, nullptr, nullptr});
    };
    CHECK(attend(s).find("nn.attention_backend is \"cudnn\", but ") == 0);
    CHECK(attend({1, 1, 1, 64, 5, true}) == "");
}
