// Recomputation of activations: which tasks run again, where, and with which tiles; and that the
// values of any program stay the same.
#include "engine/graph/passes/recompute.h"

#include <random>
#include <unordered_map>

#include "engine/graph/passes/passes.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

using Uses = std::vector<std::pair<TilePtr, Mode>>;

// Tasks recorded by hand. They are never run.
struct Recording {
    Recording() { begin_recording(); }
    ~Recording() {
        set_layer(0);
        abort_recording();
    }
    Program& program() { return *recording_program(); }
    static TilePtr tile(size_t bytes = 1 << 20) { return std::make_shared<Tile>(bytes); }
    static TilePtr persistent() {
        const uint32_t number = recording_number();
        set_recording_number(0);
        TilePtr out = tile(1 << 10);
        set_recording_number(number);
        return out;
    }
    static void at(const std::string& layer) { set_layer(layer_id(layer)); }
    Task& task(const char* kernel, const Uses& uses) {
        Task out;
        std::memset(&out.arg, 0, sizeof out.arg);
        out.arg.kernel = find_kernel(kernel), out.arg.op = kernel, out.arg.layer = current_layer();
        out.arg.dtype = Dtype::f32;
        for (const auto& [tile, mode] : uses) {
            out.add_tile(tile, mode);
            out.arg.bytes += float(tile->bytes);
        }
        if (std::strcmp(kernel, "gemm") == 0) out.arg.flops = out.arg.bytes * 1000;
        program().tasks.push_back(std::move(out));
        return program().tasks.back();
    }
    void backward(const std::function<void()>& tasks) {
        begin_backward();
        tasks();
        end_backward();
    }
    std::vector<std::string> texts() {
        std::vector<std::string> out;
        for (const Task& t : program().tasks)
            out.push_back(std::string(t.arg.layer) + " " + t.arg.kernel->name +
                          (t.repeats ? " again" : "") + (t.gates ? ", waits" : ""));
        return out;
    }
};
using Texts = std::vector<std::string>;
constexpr Mode r = Mode::read, w = Mode::write, rw = Mode::read_write;

// Layers of a product and an activation: what the product writes is changed in place.
void record_layers(Recording& rec, int layers, const TilePtr& weight) {
    std::vector<TilePtr> pre{nullptr}, result{rec.tile()}, gradient(size_t(layers) + 2);
    rec.at("tok");
    rec.task("gemm", {{result[0], w}});
    for (int i = 1; i <= layers; ++i) {
        rec.at(format("blocks.%d.mlp", i));
        pre.push_back(rec.tile()), result.push_back(rec.tile());
        rec.task("gemm", {{pre.back(), w}, {result[size_t(i) - 1], r}, {weight, r}});
        rec.task("mul", {{pre.back(), rw}});
        rec.task("gemm", {{result.back(), w}, {pre.back(), r}});
    }
    rec.at("");
    const TilePtr loss = rec.tile(8);
    rec.task("add", {{loss, w}, {result.back(), r}});
    rec.backward([&] {
        gradient.back() = rec.tile();
        rec.task("add", {{gradient.back(), w}, {loss, r}});
        for (int i = layers; i > 0; --i) {
            rec.at(format("blocks.%d.mlp", i));
            gradient[size_t(i)] = rec.tile();
            rec.task("sub", {{gradient[size_t(i)], w},
                             {gradient[size_t(i) + 1], r},
                             {pre[size_t(i)], r},
                             {result[size_t(i) - 1], r}});
        }
        rec.at("");
    });
    rec.task("add", {{weight, rw}, {gradient[1], r}});
}

// The value of a tile as a number that depends on everything it was computed from.
class Interpreter {
public:
    explicit Interpreter(const Program& program) {
        auto step = program.scalar_steps.begin();
        for (size_t t = 0; t < program.tasks.size(); ++t) {
            for (; step != program.scalar_steps.end() && step->before_task <= t; ++step)
                scalars_[step->scalar] += step->delta;
            const uint64_t result = run(program.tasks[t]);
            if (!program.tasks[t].repeats) results.push_back(result);
        }
    }
    std::vector<uint64_t> results;  // of tasks that do not repeat others, in order

private:
    uint64_t run(const Task& task) {
        uint64_t hash = 0;
        std::memcpy(&hash, task.arg.params, sizeof hash);
        for (const Patch& patch : task.patches)
            add(hash, uint64_t(1000 + scalars_[patch.scalar_id]));
        for (int i = 0; i < task.handles - task.gates; ++i)
            if (task.modes[i] != Mode::write) add(hash, value_of(*task.tiles[i]));
        for (int i = 0; i < task.handles - task.gates; ++i)
            if (task.writes(i)) {
                add(hash, uint64_t(i));
                values_[task.tiles[i].get()] = hash;
            }
        return hash;
    }
    uint64_t value_of(const Tile& tile) {
        if (!tile.recording) return values_.insert({&tile, tile.number}).first->second;
        const auto at = values_.find(&tile);
        if (at == values_.end()) FAIL("a temporary is read before it is written");
        return at->second;
    }
    static void add(uint64_t& hash, uint64_t value) {
        hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    std::unordered_map<const Tile*, uint64_t> values_;
    std::unordered_map<int32_t, double> scalars_;
};

// Random layers with several outputs, changes in place, tiles that enter other layers, changes of
// persistent tiles and scalars; one or more microbatches.
void record_random(Recording& rec, std::mt19937& random, int32_t scalar) {
    const auto below = [&](size_t n) { return size_t(random() % n); };
    std::vector<TilePtr> persistent{rec.persistent(), rec.persistent(), rec.persistent()}, old;
    uint64_t salt = 0;
    const auto emit = [&](std::vector<TilePtr>& live, std::vector<TilePtr>* all) {
        Uses uses;
        const auto use = [&](const TilePtr& tile, Mode mode) {
            for (const auto& known : uses)
                if (known.first == tile) return;
            uses.push_back({tile, mode});
        };
        for (size_t i = 0; i <= below(2); ++i) {
            live.push_back(rec.tile((1 + below(8)) << 16));
            use(live.back(), w);
        }
        if (live.size() > 4 && below(4) == 0) use(live[below(live.size())], rw);
        for (size_t i = 0; i < below(4); ++i) {
            const TilePtr& tile = live[below(live.size())];
            if (tile != live.back() && (live.size() < 2 || tile != live[live.size() - 2]))
                use(tile, r);
        }
        if (below(3) == 0) use(persistent[below(3)], below(8) == 0 ? rw : r);
        const char* const kernels[] = {"gemm", "add", "mul"};
        Task& task = rec.task(kernels[below(3)], uses);
        std::memcpy(task.arg.params, &++salt, sizeof salt);
        if (below(4) == 0) task.patches.push_back({Patch::scalar, 0, scalar});
        if (below(20) == 0)
            rec.program().scalar_steps.push_back({rec.program().tasks.size(), scalar, 1});
        for (const auto& [tile, mode] : uses)
            if (all && mode == w) all->push_back(tile);
    };
    for (size_t m = 0, microbatches = 1 + below(3); m < microbatches; ++m) {
        if (microbatches > 1) begin_microbatch(1);
        std::vector<TilePtr> live = old, all;
        for (size_t layer = 0, layers = 1 + below(5); layer < layers; ++layer) {
            rec.at(format("blocks.%zu.%s", layer + 1, below(2) ? "attn" : "mlp"));
            for (size_t i = 0; i < 1 + below(5); ++i) emit(live, &all);
        }
        rec.at("");
        emit(live, nullptr);
        rec.backward([&] {
            std::vector<TilePtr> both = all;
            for (size_t i = 0; i < 3 + below(10); ++i) emit(both, nullptr);
        });
        if (below(2)) old = all;
        std::vector<TilePtr> ends = all;
        if (below(3) == 0) emit(ends, nullptr);
    }
    rec.task("add", {{persistent[0], rw}});
}

}  // namespace

TEST_CASE("a layer runs again right before its backward pass, from what enters it") {
    const Session session;
    Recording rec;
    record_layers(rec, 2, rec.persistent());
    const Recomputation recomputation(rec.program());
    REQUIRE(recomputation.options().size() == 2);
    CHECK(recomputation.options()[0].layer == "blocks.1.mlp");  // not used for the longest time
    CHECK(recomputation.options()[0].bytes == 1 << 20);
    CHECK(recomputation.options()[0].value > recomputation.options()[1].value);
    recomputation.apply(rec.program(), 2);
    CHECK(rec.texts() == Texts{"tok gemm", "blocks.1.mlp gemm", "blocks.1.mlp mul",
                               "blocks.1.mlp gemm", "blocks.2.mlp gemm", "blocks.2.mlp mul",
                               "blocks.2.mlp gemm", " add", " add",
                               "blocks.2.mlp gemm again, waits", "blocks.2.mlp mul again",
                               "blocks.2.mlp sub", "blocks.1.mlp gemm again, waits",
                               "blocks.1.mlp mul again", "blocks.1.mlp sub", " add"});
    const auto& tasks = rec.program().tasks;
    CHECK(tasks[9].tiles[0] == tasks[10].tiles[0]);
    CHECK(tasks[11].tiles[2] == tasks[10].tiles[0]);
    CHECK(tasks[9].tiles[0] != tasks[4].tiles[0]);
    CHECK(tasks[9].tiles[1] == tasks[4].tiles[1]);  // what enters the layer
    CHECK(tasks[9].tiles[3] == tasks[8].tiles[0]);  // the gradient, for which it waits
    CHECK(rec.program().backwards[0].begin == 8);
    CHECK(rec.program().backwards[0].end == 15);
    CHECK(rec.program().recomputed_bytes == 2 << 20);
}

TEST_CASE("recomputation lowers the peak, and less of it less") {
    const Session session;
    const auto peak = [](size_t options) {
        Recording rec;
        record_layers(rec, 8, rec.persistent());
        const Recomputation recomputation(rec.program());
        REQUIRE(recomputation.options().size() == 8);
        recomputation.apply(rec.program(), options);
        schedule_tasks(rec.program());
        return rec.program().info.peak_bytes >> 20;
    };
    CHECK(peak(0) == 18);  // 2 of each layer, what enters the first one, and a gradient
    CHECK(peak(4) == 14);
    CHECK(peak(8) == 11);
}

TEST_CASE("nothing is recomputed from what changes, or if it changes what persists") {
    const Session session;
    const auto options = [](const std::function<void(Recording&, const TilePtr&)>& in_between) {
        Recording rec;
        const TilePtr weight = rec.persistent(), kept = rec.tile(), next = rec.tile();
        rec.at("blocks.1");
        Task& task = rec.task("gemm", {{kept, w}, {weight, r}});
        task.patches.push_back({Patch::scalar, 0, 5});
        rec.at("blocks.2");
        rec.task("add", {{next, w}});
        in_between(rec, weight);
        rec.backward([&] { rec.task("add", {{rec.tile(), w}, {kept, r}, {next, r}}); });
        return Recomputation(rec.program()).options().size();
    };
    CHECK(options([](Recording&, const TilePtr&) {}) == 1);
    CHECK(options([](Recording& rec, const TilePtr& weight) {
              rec.task("add", {{weight, rw}});
          }) == 0);
    CHECK(options([](Recording& rec, const TilePtr&) {
              rec.program().scalar_steps.push_back({rec.program().tasks.size(), 5, 1});
          }) == 0);
    CHECK(options([](Recording& rec, const TilePtr&) {
              Task& first = rec.program().tasks[0];
              first.modes[1] = rw;
          }) == 0);
}

TEST_CASE("a program without a backward pass has nothing to recompute") {
    const Session session;
    Recording rec;
    rec.at("blocks.1");
    const TilePtr a = rec.tile(), b = rec.tile();
    rec.task("gemm", {{a, w}});
    rec.at("blocks.2");
    rec.task("gemm", {{b, w}, {a, r}});
    rec.task("add", {{rec.tile(), w}, {a, r}});
    CHECK(Recomputation(rec.program()).options().empty());
}

TEST_CASE("random programs compute the same values, whatever they recompute") {
    const Session session;
    const char* const asked = std::getenv("RECOMPUTE_PROGRAMS");
    const int32_t scalar = new_scalar(0);
    size_t recomputed = 0;
    for (uint32_t seed = 1; seed <= uint32_t(asked ? std::atoi(asked) : 400); ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        Recording rec;
        record_random(rec, random, scalar);
        const std::vector<uint64_t> expected = Interpreter(rec.program()).results;
        const Recomputation recomputation(rec.program());
        const size_t options = recomputation.options().size();
        for (const size_t count : {options, options / 2, options ? random() % options : 0}) {
            const auto trial = trial_of(rec.program());
            recomputation.apply(*trial, count);
            CHECK(Interpreter(*trial).results == expected);
            schedule_tasks(*trial);
            recomputed += size_t(trial->recomputed_bytes > 0);
        }
    }
    free_scalar(scalar);
    if (!asked) CHECK(recomputed > 200);
}

}  // namespace nn::engine_test
