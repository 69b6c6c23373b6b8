// Programs that are prepared for GPUs: where tasks run, which memory they share, and which of them
// are submitted together. No GPU is needed.
#include "engine/graph/gpus/gpus.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/graph/cost.h"
#include "engine/graph/passes/passes.h"
#include "engine/schedule/group_on_cpus.h"
#include "engine/schedule/pipeline.h"
#include "kernels/params/pointwise.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

// A step like that of training: lanes of activations through layers and back, gradients that all
// lanes add to, and an update of each weight.
struct Step {
    explicit Step(int lanes, int layers) {
        for (int l = 0; l < layers; ++l) {
            weights.push_back(tensor(size_t(8 * (l + 1)), 0));
            weights.back().tile(0)->kind = TileKind::weights;
        }
        begin_recording();
        const Tensor input(Grid{{cut_every(lanes, 1)}}, Dtype::i64);
        std::vector<TilePtr> now, gradients;
        std::vector<std::vector<TilePtr>> kept;
        for (int i = 0; i < lanes; ++i) {
            now.push_back(input.tile(i));
            now.back()->recorded = true;
        }
        for (int l = 0; l < layers; ++l) {
            set_layer(layer_id("blocks." + std::to_string(l) + ".mlp"));
            kept.push_back(now);
            for (TilePtr& x : now) x = forward(x, weights[size_t(l)].tile(0));
        }
        for (int l = layers; l-- > 0;) {
            set_layer(layer_id("blocks." + std::to_string(l) + ".mlp"));
            const TilePtr gradient = std::make_shared<Tile>(weights[size_t(l)].tile(0)->bytes);
            gradients.push_back(gradient);
            for (int i = 0; i < lanes; ++i) {
                task("add", {i ? updates(gradient) : writes(gradient), reads(now[size_t(i)]),
                             reads(kept[size_t(l)][size_t(i)])});
                now[size_t(i)] = forward(now[size_t(i)], weights[size_t(l)].tile(0));
            }
        }
        for (int l = 0; l < layers; ++l)
            task("add",
                 {updates(weights[size_t(l)].tile(0)), reads(gradients[size_t(layers - 1 - l)])});
        set_layer(0);
        program = end_recording({input}, {});
        prepare(*program);
    }

    static TilePtr forward(const TilePtr& x, const TilePtr& weight) {
        const auto y = std::make_shared<Tile>(256);
        task("add", {writes(y), reads(x), reads(weight)});
        return y;
    }
    static void task(const char* kernel, std::initializer_list<Use> uses) {
        nn::task(kernel, Dtype::i64).use(uses).params(nn_pointwise_params{}).emit();
    }
    static Tensor tensor(size_t bytes, double value) {
        const Tensor out(Grid::whole({int64_t(bytes) / 8}), Dtype::i64);
        fill(out, value);
        return out;
    }

    std::vector<Tensor> weights;
    std::shared_ptr<Program> program;
};

// The tasks of each kind on each GPU.
std::vector<int> tasks_on(const Program& program, int gpus, bool updates) {
    std::vector<int> out(size_t(gpus), 0);
    for (const Task& task : program.tasks)
        if (!task.tiles[0]->recording == updates) ++out[size_t(task.gpu)];
    return out;
}

// The tiles that the tasks that change each tile read, in the order of the changes.
using Changes = std::map<const Tile*, std::vector<std::vector<const Tile*>>>;
Changes changes(const Program& program) {
    Changes out;
    for (const Task& task : program.tasks) {
        std::vector<const Tile*> read;
        for (int i = 1; i < task.handles; ++i) read.push_back(task.tiles[i].get());
        out[task.tiles[0].get()].push_back(read);
    }
    return out;
}

}  // namespace

TEST_CASE("the lanes of a program are divided over GPUs, and so are its weights") {
    const Session session;
    for (int gpus : {1, 2, 4}) {
        const Step step(4, 7);
        place_on_gpus(*step.program, gpus);
        CHECK(tasks_on(*step.program, gpus, false) == std::vector<int>(size_t(gpus), 80 / gpus));
        std::vector<size_t> owned(size_t(gpus), 0);
        for (const Task& task : step.program->tasks)
            if (!task.tiles[0]->recording) owned[size_t(task.gpu)] += task.tiles[0]->bytes;
        const auto [least, most] = std::minmax_element(owned.begin(), owned.end());
        CHECK(*most - *least <= 16);
    }
}

TEST_CASE("sums of all lanes come last in their layer, in the same order") {
    const Session session;
    Step step(2, 3);
    const Changes before = changes(*step.program);
    place_on_gpus(*step.program, 2);
    delay_sums(*step.program);
    CHECK((changes(*step.program) == before));
    std::vector<bool> sums;
    for (const Task& task : step.program->tasks) sums.push_back(task.is_sum);
    const std::vector<bool> forward(6, false), layer{false, false, true, true};
    std::vector<bool> expected = forward;
    for (int l = 0; l < 2; ++l) expected.insert(expected.end(), layer.begin(), layer.end());
    expected.insert(expected.end(), {true, true, false, false, false});  // updates at the end
    CHECK(sums == expected);
}

TEST_CASE("temporaries share memory only after their last use, and the peak does not grow") {
    const Session session;
    Step step(2, 6);
    place_on_gpus(*step.program, 1);
    const std::vector<Task> before = step.program->tasks;
    const int64_t peak = step.program->info.peak_bytes;
    const int64_t tiles = step.program->info.tiles;
    share_memory(*step.program);
    find_lifetimes(*step.program);
    CHECK(step.program->info.peak_bytes <= peak);
    CHECK(step.program->info.tiles < tiles);
    // Every task reads what the same task wrote before.
    std::map<const Tile*, size_t> writer_then, writer_now;
    for (size_t t = 0; t < before.size(); ++t) {
        const Task &then = before[t], &now = step.program->tasks[t];
        REQUIRE(then.handles == now.handles);
        for (int i = 0; i < then.handles; ++i) {
            if (then.modes[i] == Mode::write) continue;
            CHECK(writer_then.count(then.tiles[i].get()) == writer_now.count(now.tiles[i].get()));
            CHECK(writer_then[then.tiles[i].get()] == writer_now[now.tiles[i].get()]);
        }
        for (int i = 0; i < then.handles; ++i)
            if (then.writes(i)) {
                writer_then[then.tiles[i].get()] = t + 1;
                writer_now[now.tiles[i].get()] = t + 1;
            }
    }
}

namespace {

// Each task is in one group, behind those on which it depends.
void check_order(Program& program, const std::vector<TaskGroup>& groups) {
    const Edges before = predecessors(program.accesses());
    std::set<uint32_t> done;
    for (const TaskGroup& group : groups)
        for (const uint32_t t : group.tasks) {
            for (const Edge* e = before.begin(t); e != before.end(t); ++e)
                CHECK(done.count(e->task) == 1);
            CHECK(done.insert(t).second);
        }
    CHECK(done.size() == program.tasks.size());
}

}  // namespace

TEST_CASE("groups keep the order of dependencies, and every temporary dies after its last group") {
    const Session session;
    for (int gpus : {1, 2}) {
        Step step(4, 5);
        if (!step.program->tasks[0].arg.kernel->on(Device::cuda)) {
            WARN("this build has no CUDA, so it groups no tasks");
            return;
        }
        place_on_gpus(*step.program, gpus);
        delay_sums(*step.program);
        find_lifetimes(*step.program);
        const std::vector<TaskGroup> groups = group_tasks(*step.program, {.bytes = 1 << 30}, 0);
        check_order(*step.program, groups);
        size_t largest = 0;
        for (const TaskGroup& group : groups) {
            largest = std::max(largest, group.tasks.size());
            for (const uint32_t t : group.tasks) CHECK(step.program->tasks[t].gpu == group.gpu);
        }
        CHECK(groups.size() < step.program->tasks.size());
        CHECK(largest > 1);
        std::map<const Tile*, size_t> dies;
        for (size_t g = 0; g < groups.size(); ++g)
            for (const TilePtr& tile : groups[g].dies_after) dies[tile.get()] = g;
        for (size_t g = 0; g < groups.size(); ++g)
            for (const TilePtr& tile : groups[g].tiles) {
                if (tile->recording && !std::count(step.program->die_at_end.begin(),
                                                   step.program->die_at_end.end(), tile))
                    CHECK(dies.at(tile.get()) >= g);
            }
        size_t kept_alive = 0;
        for (const TaskGroup& group : group_tasks(*step.program, {.bytes = 1 << 30}, 1 << 20))
            kept_alive += group.dies_after.size();
        CHECK(kept_alive == 0);
        const auto bytes_of = [](const TaskGroup& group) {
            size_t bytes = 0;
            for (const TilePtr& tile : group.tiles) bytes += tile->bytes;
            return bytes;
        };
        const size_t most = bytes_of(groups[0]) / 2;
        const std::vector<TaskGroup> small =
            group_tasks(*step.program, {.bytes = int64_t(most)}, 0);
        CHECK(small.size() > groups.size());
        for (const TaskGroup& group : small)
            CHECK((group.tasks.size() == 1 || bytes_of(group) <= most));
    }
}

TEST_CASE("what lasts counts beside all temporaries in the memory of a GPU") {
    const auto tile = [](int64_t megabytes) {
        const Tensor one(Grid::whole({megabytes << 18}), Dtype::f32);
        return one.tile(0);
    };
    const TilePtr weight = tile(1), state = tile(8), activation = tile(4), gradient = tile(2);
    const auto group = [](int16_t gpu, std::vector<TilePtr> tiles, std::vector<TilePtr> dying) {
        TaskGroup out;
        out.gpu = gpu, out.tiles = std::move(tiles), out.dies_after = std::move(dying);
        return out;
    };
    const int64_t megabyte = 1 << 20;
    std::vector<TaskGroup> step = {group(0, {weight, activation}, {}),
                                   group(0, {weight, activation, gradient}, {activation}),
                                   group(0, {weight, state, gradient}, {gradient})};
    // The state is there from the second run on. The activation dies when the last group, whose
    // tiles are allocated before, begins.
    CHECK(peak_on_a_gpu(step) / megabyte == 15);
    step.push_back(group(1, {state}, {}));
    CHECK(peak_on_a_gpu(step) / megabyte == 15);
    step.push_back(group(-1, {tile(100)}, {}));  // not on a GPU
    CHECK(peak_on_a_gpu(step) / megabyte == 15);
}

TEST_CASE("short tasks on CPU workers form groups that are not too long") {
    const Session session;
    Step step(4, 5);
    place_on_gpus(*step.program, 2);
    delay_sums(*step.program);
    find_lifetimes(*step.program);
    const double task = nominal_seconds(step.program->tasks[0].arg);
    for (const double most : {task / 2, 2.5 * task, 1.0}) {
        const std::vector<TaskGroup> groups =
            group_tasks(*step.program, {.device = Device::cpu, .seconds = most}, 0);
        check_order(*step.program, groups);
        CHECK((groups.size() < step.program->tasks.size()) == (most > task));
        for (const TaskGroup& group : groups) {
            double seconds = 0;
            for (const TaskArg& arg : group.args) seconds += nominal_seconds(arg);
            CHECK(group.gpu == -1);
            CHECK((group.tasks.size() == 1 || seconds <= most));
        }
    }
}

TEST_CASE("a program runs in groups on as many CPU workers as it has tiles of tokens") {
    const Session session;
    Step step(4, 40);
    const ProgramInfo info = step.program->info;
    for (const int workers : {1, 4}) {
        const std::vector<TaskGroup> groups = prepare_for_cpus(*step.program, workers);
        REQUIRE(!groups.empty());
        CHECK(groups.size() < step.program->tasks.size());
        check_order(*step.program, groups);
    }
    CHECK(prepare_for_cpus(*step.program, 5).empty());
    for (const Task& task : step.program->tasks) CHECK((task.gpu == -1 && task.lane == 0));
    CHECK(step.program->info.peak_bytes == info.peak_bytes);
    CHECK(info.temporary_bytes > info.peak_bytes);
    step.program->in_team = true;
    CHECK(prepare_for_cpus(*step.program, 1).empty());
}

}  // namespace nn::engine_test
