// Random calls of the whole C API: live, stale and forged handles, arguments in and out of range,
// missing pointers, in any state. Every call returns a status, leaves a message if it refuses, and
// the library works afterwards. Only what the API cannot check is always correct: pointers refer to
// as much memory as their count says, and kernels that run directly get valid parameters.
// NNLUA_TEST_SEED=1000 makes other calls; NNLUA_FUZZ_LOG=1 prints each call before it runs, to find
// a crash.
#include "tests/cpp/capi_fuzz.h"

#include <cstdio>

#include "kernels/params/fill.h"

namespace nn::capi_test {
namespace {

class Fuzzer : FuzzInspection {
public:
    explicit Fuzzer(uint64_t seed) : FuzzInspection(seed) {
        for (int i = 0; i < nn_op_count(); ++i) {
            nn_op_info(i, &ops.emplace_back());
            attributes.emplace_back(size_t(ops.back().attributes));
            for (int k = 0; k < ops.back().attributes; ++k)
                nn_op_attribute(i, k, &attributes.back()[size_t(k)]);
        }
        nn_memory_budget(budget);
    }
    void run(int calls) {
        for (int i = 0; i < calls; ++i) {
            const Call& call = pick_call();
            if (log) std::fprintf(stderr, "%d %s\n", i, call.name), std::fflush(stderr);
            INFO("call " << i << ": " << call.name);
            judge((this->*call.make)());
        }
    }
    using FuzzArguments::accepted, FuzzArguments::refused;

private:
    struct Call {
        const char* name;
        int weight;
        int (Fuzzer::*make)();
    };
    static const std::vector<Call> calls;
    const Call& pick_call() {
        static const int total = [] {
            int sum = 0;
            for (const Call& call : calls) sum += call.weight;
            return sum;
        }();
        int64_t at = random.integer(0, total - 1);
        for (const Call& call : calls)
            if ((at -= call.weight) < 0) return call;
        return calls[0];
    }
    // Mostly of the declared kind. `lists` owns the numbers until the call returns.
    nn_value value(const nn_attribute_info& a) {
        static const char* const dtypes[] = {"f32", "f64", "bf16", "i32",
                                             "i64", "u8",  "bool", "f8"};
        static const char* const names[] = {"", "tokens", "batch,time", "vocab,,x", "cond"};
        const std::string kind = a.kind;
        const bool optional = *a.default_value != '\0';
        if (one_in(optional ? 2 : 30)) return {};
        if (one_in(30)) return {any32(), any32() % 3, real(), names[1], nullptr};
        if (one_in(20)) return slot(int32_t(small()));
        if (kind == "dtype") return text(dtypes[random.integer(0, 7)]);
        if (kind == "text") return text(names[random.integer(0, 4)]);
        if (kind == "bool") return number(double(random.integer(0, 1)));
        if (kind == "ints" || (kind == "axes" && one_in(2))) {
            Numbers& numbers = lists.emplace_back();
            const int64_t count = random.integer(0, one_in(20) ? 12 : 4);
            for (int64_t i = 0; i < count; ++i)
                numbers.push_back(one_in(20) ? any() : random.integer(1, 4));
            return list(numbers);
        }
        if (kind == "int" || kind == "axis" || kind == "axes") return number(double(any()));
        return number(real());
    }

    // --- calls ---
    int apply() {
        const int32_t op = one_in(50) ? any32() : int32_t(random.integer(0, nn_op_count() - 1));
        const bool known = op >= 0 && op < nn_op_count();
        lists.clear();
        lists.reserve(32);
        std::vector<nn_value> values;
        if (known)
            for (const nn_attribute_info& a : attributes[size_t(op)]) values.push_back(value(a));
        if (known && one_in(4))  // numbers in place of tensors, which few ops take
            for (int i = 0; i < ops[size_t(op)].inputs; ++i)
                values.push_back(one_in(2) ? number(real()) : nn_value{});
        const auto inputs =
            tensors(one_in(20) || !known ? random.integer(0, 8) : ops[size_t(op)].inputs);
        nn_ref out[8] = {};
        int32_t room = one_in(40) ? std::min(any32(), 8) : 8;
        const int status =
            nn_apply(op, perhaps(inputs.data()), one_in(60) ? -1 : int32_t(inputs.size()),
                     perhaps(values.data()), int32_t(values.size()), perhaps(out), perhaps(&room));
        for (int i = 0; i < 8; ++i)
            if (status == NN_OK && out[i].index) keep(out[i]);
        return status;
    }
    // A tensor of any dtype and a small shape, which sometimes fits other tensors.
    int make() {
        static const char* const dtypes[] = {"f32", "f32", "f64", "bf16",
                                             "i32", "i64", "u8",  "bool"};
        Numbers shape;
        for (int64_t i = random.integer(0, 3); i-- > 0;) shape.push_back(random.integer(1, 4));
        nn_ref out{};
        const int status = capi_test::apply(
            "full", {},
            {list(shape), number(double(random.integer(0, 3))), text(dtypes[random.integer(0, 7)])},
            &out);
        if (status == NN_OK) keep(out);
        return status;
    }
    int retile() {
        const nn_ref x = tensor();
        nn_tensor_info info{};
        nn_tensor_info_get(&x, &info);
        int64_t tile[16];
        for (int64_t& t : tile) t = one_in(10) ? any() : random.integer(0, 3);
        nn_ref out{};
        const int32_t rank = one_in(20) ? std::min(any32(), 16) : info.rank;
        const int status = nn_retile(perhaps(&x), perhaps(tile), rank, perhaps(&out));
        if (status == NN_OK) keep(out);
        return status;
    }
    int inspect() {
        const nn_ref x = tensor();
        nn_tensor_info info;
        int64_t cuts[4];
        int32_t count;
        switch (random.integer(0, 1)) {
            case 0: return nn_tensor_info_get(perhaps(&x), perhaps(&info));
            default:
                return nn_cuts(perhaps(&x), any32(), perhaps(cuts), std::min(any32(), 4),
                               perhaps(&count));
        }
    }
    int transfer() {
        const nn_ref x = tensor();
        nn_tensor_info info{};
        nn_tensor_info_get(&x, &info);
        const int64_t bytes = one_in(10) ? any() : info.bytes;
        if (one_in(2)) return nn_read(perhaps(&x), perhaps(host.data()), bytes);
        for (int i = 0; i < 64; ++i) host[size_t(i)] = uint8_t(random.integer(0, 3));
        return nn_write(perhaps(&x), perhaps(host.data()), bytes);
    }
    int release() {
        const nn_ref ref = one_in(10) ? program() : tensor();
        return nn_release(perhaps(&ref));
    }
    int record_begin() { return nn_record_begin(); }
    int record_input() {
        const nn_ref like = tensor();
        nn_ref out{};
        const int status = nn_record_input(perhaps(&like), perhaps(&out));
        if (status != NN_OK) return status;
        keep(out);
        if (recorded_inputs.size() < 3) recorded_inputs.push_back(out);
        return status;
    }
    int record_end() {
        const auto in = one_in(4) ? tensors(random.integer(0, 2)) : recorded_inputs;
        auto out = tensors(random.integer(0, 2));
        nn_ref made{};
        const int status = nn_record_end(perhaps(in.data()), one_in(40) ? -1 : int32_t(in.size()),
                                         out.data(), int32_t(out.size()), perhaps(&made));
        if (!nn_recording()) recorded_inputs.clear();
        if (status != NN_OK) return status;
        if (programs.size() == 8) {
            nn_release(&programs.front());
            programs.erase(programs.begin());
        }
        programs.push_back(made);
        return status;
    }
    int record_abort() {
        recorded_inputs.clear();
        return nn_record_abort();
    }
    int program_run() {
        const nn_ref p = program();
        const auto in = tensors(random.integer(0, 3));
        nn_ref out[4] = {};
        const int32_t room = one_in(10) ? std::min(any32(), 4) : 4;
        const int status =
            nn_program_run(perhaps(&p), perhaps(in.data()), int32_t(in.size()), perhaps(out), room);
        for (const nn_ref& ref : out)
            if (status == NN_OK && ref.index) keep(ref);
        return status;
    }
    int program_info() {
        const nn_ref p = program();
        nn_program_info_t info;
        return nn_program_info(perhaps(&p), perhaps(&info));
    }
    int slots() {
        int32_t id;
        double value;
        switch (random.integer(0, 4)) {
            case 0: return nn_scalar_new(real(), perhaps(&id));
            case 1: return nn_scalar_free(any32());
            case 2: return nn_scalar_set(any32(), real());
            case 3: return nn_scalar_get(any32(), perhaps(&value));
            default: return nn_scalar_add(any32(), real());
        }
    }
    int scopes() {
        if (one_in(2) && open_scopes < 5) return ++open_scopes, nn_scope_begin();
        const auto kept = tensors(random.integer(0, 4));
        const int status = nn_scope_end(perhaps(kept.data()), int32_t(kept.size()));
        if (status == NN_OK) --open_scopes;
        return status;
    }
    int session() {
        int32_t a, b;
        nn_memory_info_t memory;
        switch (random.integer(0, 5)) {
            case 0: return nn_sync();
            case 1: return one_in(10) ? nn_idle() : NN_OK;
            case 2: return nn_workers(perhaps(&a), perhaps(&b));
            case 3:
                return nn_configure(any32(), one_in(2) ? "" : "eagre", any32(), int64_t(any()),
                                    any32(), any32());
            case 4: return nn_memory(perhaps(&memory));
            default: return nn_memory_budget(one_in(3) ? -1 : budget >> random.integer(0, 2));
        }
    }
    int interrupts() {
        int32_t flag;
        if (one_in(2)) nn::request_interrupt();
        judge(nn_defer_interrupts(one_in(3)));
        for (int i = 0; i < 3; ++i) judge(make());
        judge(nn_interrupted(perhaps(&flag)));
        judge(nn_defer_interrupts(0));
        return nn_clear_interrupt();
    }
    int randomness() {
        uint64_t seed, counter;
        int64_t drawn;
        switch (random.integer(0, 3)) {
            case 0: return nn_seed(uint64_t(any()));
            case 1: return nn_random_state(perhaps(&seed), perhaps(&counter));
            case 2: return nn_set_random_counter(uint64_t(any()));
            default: return nn_next_random(perhaps(&drawn));
        }
    }
    int tile_size() {
        static const char* const axes[] = {"tokens", "vocab", "batch", "time", ""};
        return nn_tile_size(perhaps(axes[random.integer(0, 4)]), any());
    }
    int copies() {
        double doubles[4] = {1, -1, 0.5, 3};
        unsigned char raw[32] = {};
        const int64_t count = std::min<int64_t>(any(), 4);
        if (one_in(2)) return nn_copy_f64(perhaps(raw), any32(), count, perhaps(doubles));
        return nn_copy_from_f64(perhaps(doubles), any32(), count, perhaps(raw));
    }
    // Fills one byte, which every tile has. Other kernels get any number of operands, and
    // parameters of a wrong size.
    int task() {
        const nn_fill_params params{1, 3};
        nn_task_operand uses[16];
        for (nn_task_operand& use : uses) use = {tensor(), any(), one_in(4) ? any32() : 1};
        const bool fill = one_in(2);
        nn_kernel_info_t info;
        nn_kernel_info(int32_t(random.integer(0, nn_kernel_count() - 1)), &info);
        return nn_task(perhaps(fill ? "fill" : info.name), fill ? 5 : any32(), perhaps(uses),
                       fill ? 1 : std::min(any32(), 16), perhaps(&params),
                       fill ? int64_t(sizeof params) : -1, any32(), any32());
    }
    int shutdown() {
        recorded_inputs.clear();
        const int status = nn_shutdown();
        judge(nn_configure(int32_t(random.integer(0, 2)), one_in(2) ? "eager" : nullptr, -1, 0, 0,
                           0));
        return status;
    }

    const bool log = std::getenv("NNLUA_FUZZ_LOG") != nullptr;
    std::vector<nn_op_info_t> ops;
    std::vector<std::vector<nn_attribute_info>> attributes;
    std::vector<Numbers> lists;
    std::vector<nn_ref> recorded_inputs;
    int open_scopes = 0;
};

const std::vector<Fuzzer::Call> Fuzzer::calls = {
    {"apply", 3000, &Fuzzer::apply},
    {"make", 1200, &Fuzzer::make},
    {"retile", 300, &Fuzzer::retile},
    {"inspect", 200, &Fuzzer::inspect},
    {"transfer", 400, &Fuzzer::transfer},
    {"release", 200, &Fuzzer::release},
    {"record_begin", 60, &Fuzzer::record_begin},
    {"record_input", 200, &Fuzzer::record_input},
    {"record_end", 120, &Fuzzer::record_end},
    {"record_abort", 20, &Fuzzer::record_abort},
    {"program_run", 300, &Fuzzer::program_run},
    {"program_info", 60, &Fuzzer::program_info},
    {"slots", 200, &Fuzzer::slots},
    {"scopes", 200, &Fuzzer::scopes},
    {"session", 100, &Fuzzer::session},
    {"interrupts", 60, &Fuzzer::interrupts},
    {"randomness", 60, &Fuzzer::randomness},
    {"descriptions", 150, &Fuzzer::descriptions},
    {"profile", 100, &Fuzzer::profile},
    {"plans", 150, &Fuzzer::plans},
    {"places", 100, &Fuzzer::places},
    {"layers", 60, &Fuzzer::layers},
    {"open_file", 20, &Fuzzer::open_file},
    {"write_file", 150, &Fuzzer::write_file},
    {"sums", 20, &Fuzzer::sums},
    {"tile_size", 30, &Fuzzer::tile_size},
    {"copies", 60, &Fuzzer::copies},
    {"task", 200, &Fuzzer::task},
    {"shutdown", 1, &Fuzzer::shutdown},
};

}  // namespace

TEST_CASE("100,000 random calls return, and the library works afterwards", "[sweep]") {
    const char* const wanted = std::getenv("NNLUA_TEST_SEED");
    const uint64_t seed = (wanted ? std::strtoull(wanted, nullptr, 10) : 0) + GENERATE(1, 2, 3, 4);
    INFO("seed " << seed);
    const Library library;
    Fuzzer fuzzer(seed);
    fuzzer.run(25000);
    CHECK(fuzzer.accepted > 5000);
    CHECK(fuzzer.refused > 5000);
    for (const char* axis : {"tokens", "vocab", "batch", "time", ""}) nn_tile_size(axis, 0);
    nn_record_abort();
    nn_layer_set(0, nullptr);
    nn_matmul_tf32(0, nullptr);
    nn_profile(0);
    nn_sync();
    REQUIRE_OK(nn_memory_budget(0));
    check_usable();
    REQUIRE_OK(nn_shutdown());
    CHECK(tensors_alive() == 0);
    nn_memory_info_t memory;
    REQUIRE_OK(nn_memory(&memory));
    CHECK(memory.tensors == 0);
    CHECK(memory.in_use == 0);
}

}  // namespace nn::capi_test
