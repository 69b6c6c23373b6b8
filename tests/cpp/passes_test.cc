// The passes over a recorded program, one by one, on programs made by hand.
#include "engine/graph/passes/passes.h"

#include "engine/machine/description.h"
#include "kernels/params/pointwise.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

// Records tasks by hand; the passes have not run yet.
struct Recording {
    Recording() { begin_recording(); }
    ~Recording() { abort_recording(); }
    Program& program() { return *recording_program(); }
    TilePtr temporary(size_t bytes = 8) { return std::make_shared<Tile>(bytes); }
    void task(const TilePtr& to, std::initializer_list<TilePtr> from = {}) {
        TaskBuilder builder = nn::task("add", Dtype::i64);
        builder.use(writes(to));
        for (const TilePtr& tile : from) builder.use(reads(tile));
        builder.params(nn_pointwise_params{}).emit();
    }
    void update(const TilePtr& tile) { emit_note(tile, 0); }
    std::vector<const Tile*> written() {  // by each task
        std::vector<const Tile*> out;
        for (const Task& t : program().tasks) out.push_back(t.tiles[0].get());
        return out;
    }
};
using Tiles = std::vector<const Tile*>;

Tensor tensor_of(const TilePtr& tile) {
    return Tensor(Grid::whole({int64_t(tile->bytes) / 8}), Dtype::i64, {tile});
}

}  // namespace

TEST_CASE("a reader waits for the last writer, a writer for it and the readers since") {
    Accesses accesses;
    accesses.tiles = 2;
    const auto task = [&](std::vector<std::pair<uint32_t, Mode>> uses) {
        for (const auto& [tile, mode] : uses) accesses.add(tile, mode);
        accesses.end_task();
    };
    task({{0, Mode::write}});
    task({{0, Mode::read}, {1, Mode::write}});
    task({{0, Mode::read}});
    task({{0, Mode::read_write}});
    task({{0, Mode::write}, {1, Mode::read}});
    const auto list = [](const Edges& edges, uint32_t t) {
        std::vector<std::pair<uint32_t, bool>> out;
        for (const Edge* e = edges.begin(t); e != edges.end(t); ++e)
            out.push_back({e->task, e->kind == Dependency::value});
        return out;
    };
    using List = std::vector<std::pair<uint32_t, bool>>;
    const Edges before = predecessors(accesses);
    CHECK(list(before, 0).empty());
    CHECK(list(before, 1) == List{{0, true}});
    CHECK(list(before, 2) == List{{0, true}});
    CHECK(list(before, 3) == List{{0, true}, {1, false}, {2, false}});
    CHECK(list(before, 4) == List{{3, false}, {1, true}});
    const Edges after = successors(before);
    CHECK(list(after, 0) == List{{1, true}, {2, true}, {3, true}});
    CHECK(list(after, 4).empty());
    CHECK(list(predecessors(accesses, 2), 5) == List{{4, false}});
    CHECK(paths_to_end(before, {1, 2, 4, 8, 16}) == std::vector<double>{29, 26, 28, 24, 16});
}

TEST_CASE("prune keeps what persists, what outputs need, and nothing else") {
    const Session session;
    const Tensor persistent = scalar_of(0);
    Recording r;
    const TilePtr a = r.temporary(), b = r.temporary(), c = r.temporary(), out = r.temporary();
    r.task(a);
    r.task(b);  // overwritten before it is read
    r.task(b, {a});
    r.task(c, {a});  // not used
    r.update(persistent.tile(0));
    r.task(out, {b});
    r.task(out, {b});  // the output's last value
    r.program().outputs = {tensor_of(out)};
    r.program().scalar_steps = {{4, 0, 1.0}};
    prune(r.program());
    CHECK(r.written() == Tiles{a.get(), b.get(), persistent.tile(0).get(), out.get()});
    CHECK(r.program().scalar_steps[0].before_task == 2);
}

TEST_CASE("lifetimes end with the last use, and outputs with the program") {
    const Session session;
    const Tensor persistent = scalar_of(0);
    Recording r;
    const TilePtr a = r.temporary(128), b = r.temporary(256), unused = r.temporary(1024);
    r.task(a, {persistent.tile(0)});
    r.task(b, {a});
    r.program().outputs = {tensor_of(b)};
    r.program().inputs = {tensor_of(unused)};
    find_lifetimes(r.program());
    CHECK(r.program().dies_after[0].empty());
    CHECK(r.program().dies_after[1] == std::vector<TilePtr>{a});
    CHECK(r.program().die_at_end == std::vector<TilePtr>{b, unused});
    CHECK(r.program().read_first == std::vector<TilePtr>{persistent.tile(0)});
    CHECK(r.program().info.peak_bytes == 1408);
    CHECK(r.program().info.temporary_bytes == 1408);
    CHECK(r.program().info.persistent_bytes == 8);
    CHECK(r.program().info.tiles == 4);
}

TEST_CASE("priorities follow the critical path, below what a task was given") {
    const Session session;
    Recording r;
    const TilePtr a = r.temporary(1 << 20), b = r.temporary(1 << 20), c = r.temporary();
    r.task(a);
    r.task(c);
    r.task(b, {a});
    r.program().tasks[1].priority = 1;
    set_priorities(r.program());
    const auto& tasks = r.program().tasks;
    CHECK(tasks[1].priority > tasks[0].priority);
    CHECK(tasks[0].priority > tasks[2].priority);
}

TEST_CASE("a task of the most operands has room for the gate of its microbatch") {
    const Session session;
    const auto record = [](int inputs) {
        Recording r;
        std::vector<TilePtr> from;
        for (int i = 0; i < inputs; ++i) {
            from.push_back(r.temporary());
            r.task(from.back());
        }
        for (int m = 0; m < 3; ++m) {
            begin_microbatch(1);
            TaskBuilder builder = nn::task("test_note", Dtype::i64);
            builder.use(writes(r.temporary()));
            for (const TilePtr& tile : from) builder.use(reads(tile));
            builder.params(note_params{0}).emit();
        }
        order_microbatches(r.program());
        return int(r.program().tasks.back().handles);
    };
    describe_machine("cpus=1");
    CHECK(record(max_handles - 3) == max_handles - 1);
    CHECK(record(max_operands - 1) == max_handles);
    describe_machine("");
}

TEST_CASE("a described machine stands for the host until it is taken back") {
    describe_machine("cpus=64 ram=512GB gpus=2 gpu_memory=80GB gpu_link=50GB/s disk=7TB ranks=4");
    const Machine& m = machine();
    CHECK(machine_is_described());
    CHECK(m.ranks == 4);
    CHECK(m.count(Device::cpu) == 64);
    CHECK(m.count(Device::cuda) == 2);
    CHECK(m.bytes(NodeKind::ram) == 512'000'000'000);
    CHECK(m.bytes(NodeKind::gpu) == 160'000'000'000);
    CHECK(m.nodes[2].name() == "GPU 1");
    CHECK(m.links.size() == 6);
    CHECK(m.links[0].bytes_per_second == 50e9);
    CHECK_FALSE(m.group(Device::cpu)->rates.known());
    describe_machine("cpus=8 gflops=100 bandwidth=20GB/s");
    CHECK(machine().group(Device::cpu)->rates.f32 == 1e11);
    CHECK(machine().bytes(NodeKind::ram) == host().bytes(NodeKind::ram));
    describe_machine("");
    CHECK_FALSE(machine_is_described());
    CHECK(machine().count(Device::cpu) == host().count(Device::cpu));
}

TEST_CASE("a wrong description of a machine is refused with what is possible") {
    const auto refusal = [](const char* text) { return error_of([&] { describe_machine(text); }); };
    CHECK_THAT(refusal("cores=4"), contains("'cores=4'") && contains("cpus"));
    CHECK_THAT(refusal("cpus=two"), contains("cpus is 'two'"));
    CHECK_THAT(refusal("ram=0"), contains("above 0, such as 80GB"));
    CHECK_THAT(refusal("ram=5parsec"), contains("ram is '5parsec'"));
    CHECK_THAT(refusal("no-such-file"),
               contains("cannot read 'no-such-file'; a regular file is needed"));
    CHECK_FALSE(machine_is_described());
}

}  // namespace nn::engine_test
