// How the tasks of a step are divided among ranks, on programs made by hand: every rank's list is
// run by an interpreter, which must find the values of one rank.
#include "engine/graph/passes/distribute.h"

#include <map>
#include <set>
#include <string>

#include "engine/graph/passes/copies.h"
#include "engine/graph/passes/passes.h"
#include "kernels/params/pointwise.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

struct Recording {
    Recording() { begin_recording(); }
    ~Recording() { abort_recording(); }
    TilePtr temporary() { return std::make_shared<Tile>(8); }
    void task(const std::vector<Use>& uses) {
        TaskBuilder builder = nn::task("add", Dtype::i64);
        for (const Use& use : uses) builder.use(use);
        builder.params(nn_pointwise_params{}).emit();
    }
};

TilePtr lasting_tile() {
    const TilePtr tile = std::make_shared<Tile>(8);
    tile->value = Tile::Value::written;
    return tile;
}

// The value of a tile is a hash of the tasks that made it.
using Values = std::map<const Tile*, uint64_t>;
uint64_t mixed(uint64_t a, uint64_t b) {
    return (a ^ (b + 0x9e3779b97f4a7c15)) * 0xff51afd7ed558ccd;
}

void run(const Task& task, Values* values) {
    uint64_t result = 1;
    for (int i = 0; i < task.handles; ++i)
        if (task.modes[i] != Mode::write) result = mixed(result, (*values)[task.tiles[i].get()]);
    for (int i = 0; i < task.handles; ++i)
        if (task.writes(i)) (*values)[task.tiles[i].get()] = mixed(result, uint64_t(i));
}

// Runs the lists of all ranks in turn; a receive waits for its send. Fails if all wait.
std::vector<Values> run_all(const std::vector<std::vector<Task>>& lists, std::vector<Values> values,
                            int64_t* messages) {
    std::vector<size_t> next(lists.size(), 0);
    std::map<std::pair<int64_t, int>, uint64_t> sent;  // by tag and receiver
    for (bool progress = true; progress;) {
        progress = false;
        for (size_t r = 0; r < lists.size(); ++r)
            for (; next[r] < lists[r].size(); ++next[r], progress = true) {
                const Task& task = lists[r][next[r]];
                const Tile* tile = task.tiles[0].get();
                if (task.transfer == Task::Transfer::none) {
                    run(task, &values[r]);
                } else if (task.transfer == Task::Transfer::send) {
                    sent[{task.tag, task.peer}] = values[r][tile];
                    ++*messages;
                } else {
                    const auto found = sent.find({task.tag, int(r)});
                    if (found == sent.end()) break;
                    values[r][tile] = found->second;
                }
            }
    }
    for (size_t r = 0; r < lists.size(); ++r) CHECK(next[r] == lists[r].size());
    return values;
}

// What each rank has before a run: only the owner has the right value of what only owners keep.
std::vector<Values> values_before(const Values& all, int ranks) {
    std::vector<Values> out(size_t(ranks), all);
    for (int rank = 0; rank < ranks; ++rank)
        for (auto& [tile, value] : out[size_t(rank)])
            if (tile->only_owner && tile->owner != rank) value = ~value;
    return out;
}

struct Step {
    std::vector<TilePtr> weights, moments, gradients;
    TilePtr loss;
};

// K shards compute a gradient of each weight; neighbours are added; an update reads the norm.
Step record_step(Recording& recording, const std::vector<TilePtr>& weights,
                 const std::vector<TilePtr>& moments, int shards) {
    Step step{weights, moments, {}, recording.temporary()};
    std::vector<std::vector<TilePtr>> gradients(static_cast<size_t>(shards));
    for (int s = 0; s < shards; ++s) {
        set_shard(s, shards);
        for (const TilePtr& weight : weights) {
            gradients[size_t(s)].push_back(recording.temporary());
            recording.task({writes(gradients[size_t(s)].back()), reads(weight)});
        }
    }
    set_shard(-1, shards);
    for (int apart = 1; apart < shards; apart *= 2)
        for (int s = 0; s + apart < shards; s += 2 * apart)
            for (size_t w = 0; w < weights.size(); ++w)
                recording.task(
                    {updates(gradients[size_t(s)][w]), reads(gradients[size_t(s + apart)][w])});
    const TilePtr norm = recording.temporary();
    for (size_t w = 0; w < weights.size(); ++w)
        recording.task({w == 0 ? writes(norm) : updates(norm), reads(gradients[0][w])});
    recording.task({writes(step.loss), reads(norm)});
    for (size_t w = 0; w < weights.size(); ++w)
        recording.task(
            {updates(weights[w]), updates(moments[w]), reads(gradients[0][w]), reads(norm)});
    return step;
}

}  // namespace

TEST_CASE("every rank computes the weights and results of one rank") {
    constexpr int shards = 4;
    const bool shards_weights = GENERATE(false, true);
    for (int ranks = 1; ranks <= shards; ++ranks) {
        std::vector<TilePtr> weights, moments;
        Values before;
        for (int w = 0; w < 5; ++w) {
            weights.push_back(lasting_tile());
            weights.back()->kind = TileKind::weights;
            if (shards_weights) weights.back()->keep_on(w % ranks, true);
            moments.push_back(lasting_tile());
            moments.back()->kind = optimizer_state;
            before[weights.back().get()] = uint64_t(w);
        }
        std::vector<std::vector<Task>> lists;
        Values alone = before;
        Recording recording;
        const Step step = record_step(recording, weights, moments, shards);
        Program& recorded = *recording_program();
        recorded.outputs = {Tensor(Grid::whole({1}), Dtype::i64, {step.loss})};
        for (const Task& task : recorded.tasks) run(task, &alone);
        for (int rank = 0; rank < ranks; ++rank) {
            Program part(recorded.number);
            part.tasks = recorded.tasks, part.outputs = recorded.outputs, part.shards = shards;
            choose_owners(part, {rank, ranks});
            distribute(part, {rank, ranks}, 3);
            const size_t most = moments.size() * (shards_weights ? 2 : 1);
            CHECK(part.kept_elsewhere.size() < most + size_t(ranks == 1));
            lists.push_back(part.tasks);
        }
        int64_t messages = 0;
        const std::vector<Values> values = run_all(lists, values_before(before, ranks), &messages);
        for (const Values& of_rank : values) {
            for (const TilePtr& weight : weights)
                if (!shards_weights) CHECK(of_rank.at(weight.get()) == alone[weight.get()]);
            CHECK(of_rank.at(step.loss.get()) == alone[step.loss.get()]);
        }
        for (const TilePtr& weight : weights)
            CHECK(values[size_t(weight->owner)].at(weight.get()) == alone[weight.get()]);
        for (const TilePtr& moment : moments)
            CHECK(values[size_t(moment->owner)].at(moment.get()) == alone[moment.get()]);
        // gradients and weights, and at most the norm's parts, the norm and the loss
        const int64_t least = ranks == 3 ? 0 : 2 * 5 * (ranks - 1);
        CHECK(messages >= least);
        CHECK(messages <= 2 * 5 * (ranks - 1) + 5 + 2 * ranks);
    }
}

TEST_CASE("a program without shards runs on all ranks, with the weights of their owners") {
    constexpr int ranks = 3, count = 6;
    const char* const layers[count] = {"a", "b", "c", "d", "e", "f"};
    std::vector<TilePtr> weights;
    Values before;
    for (int w = 0; w < count; ++w) {
        weights.push_back(lasting_tile());
        weights.back()->keep_on(w % ranks, true);
        before[weights.back().get()] = uint64_t(w);
    }
    Recording recording;
    const TilePtr result = recording.temporary();
    recording.task({writes(result)});
    const auto read = [&](int w) {
        recording.task({updates(result), reads(weights[size_t(w)])});
        recording_program()->tasks.back().arg.layer = layers[w];
    };
    for (int w = 0; w < count; ++w) read(w);  // forward
    for (int w = count; w-- > 0;) read(w);    // backward
    recording.task({updates(weights[1]), reads(result)});
    read(1);
    Program& recorded = *recording_program();
    recorded.outputs = {Tensor(Grid::whole({1}), Dtype::i64, {result})};
    Values alone = before;
    for (const Task& task : recorded.tasks) run(task, &alone);
    std::vector<std::vector<Task>> lists;
    for (int rank = 0; rank < ranks; ++rank) {
        Program part(recorded.number);
        part.tasks = recorded.tasks, part.outputs = recorded.outputs;
        choose_owners(part, {rank, ranks});
        distribute(part, {rank, ranks}, 3);
        lists.push_back(part.tasks);
    }
    int64_t messages = 0;
    const std::vector<Values> values = run_all(lists, values_before(before, ranks), &messages);
    for (const Values& of_rank : values) CHECK(of_rank.at(result.get()) == alone[result.get()]);
    CHECK(values[1].at(weights[1].get()) == alone[weights[1].get()]);
    // Each weight twice, except those that stay in the two buffers, and the changed one again.
    CHECK(messages >= (count + 1) * (ranks - 1) + 1);
    CHECK(messages < (2 * count + 1) * (ranks - 1));
}

TEST_CASE("tasks of the batch keep their order, and transfers come first, by urgency") {
    constexpr int ranks = 2, layers = 3;
    std::vector<TilePtr> weights;
    for (int w = 0; w < layers; ++w) weights.push_back(lasting_tile());
    Recording recording;
    TilePtr gradients[ranks][layers];
    for (int rank = 0; rank < ranks; ++rank) {
        set_shard(rank, ranks);
        const TilePtr x = recording.temporary();
        recording.task({writes(x)});
        for (int w = 0; w < layers; ++w) recording.task({updates(x), reads(weights[size_t(w)])});
        for (int w = layers; w-- > 0;) {
            recording.task({writes(gradients[rank][w] = recording.temporary()), reads(x)});
            recording.task({updates(x), reads(weights[size_t(w)])});
        }
    }
    set_shard(-1, ranks);
    for (int w = layers; w-- > 0;) {
        recording.task({updates(gradients[0][w]), reads(gradients[1][w])});
        recording.task({updates(weights[size_t(w)]), reads(gradients[0][w])});
        weights[size_t(w)]->owner = 0;
    }
    for (int rank = 0; rank < ranks; ++rank) {
        Program part(recording_program()->number);
        part.tasks = recording_program()->tasks, part.shards = ranks;
        choose_owners(part, {rank, ranks});
        distribute(part, {rank, ranks}, 3);
        set_priorities(part);
        int32_t least_other = INT32_MAX, last_in_order = INT32_MAX;
        std::vector<int32_t> sends;
        for (const Task& task : part.tasks) {
            if (task.shard >= 0 && task.transfer == Task::Transfer::none) {
                CHECK(task.priority < last_in_order);
                last_in_order = task.priority;
                continue;
            }
            least_other = std::min(least_other, task.priority);
            if (task.transfer == Task::Transfer::send) sends.push_back(task.priority);
        }
        CHECK(least_other > 0);
        // rank 0's weights and rank 1's gradients, from the last layer on
        CHECK(sends.size() == layers);
        CHECK(std::ranges::adjacent_find(sends, std::greater_equal()) == sends.end());
    }
}

TEST_CASE("copies of weights lie in buffers for two layers") {
    Copies copies;
    const char* const layers[] = {"a", "b", "c", "d"};
    std::vector<uint32_t> order{0, 1, 2, 3, 3, 2, 1, 0};  // forward, backward
    for (size_t task = 0; task < order.size(); ++task)
        copies.add({order[task], task, 8, layers[order[task]]});
    std::set<const Tile*> buffers;
    std::string received;
    for (size_t task = 0; task < order.size(); ++task) {
        const auto [buffer, is_new] = copies.copy_for(order[task], task, 8, 1);
        buffers.insert(buffer.get());
        received += is_new ? layers[order[task]] : "-";
    }
    CHECK(received == "abcd--ba");
    CHECK(buffers.size() == 2);
    copies.forget(0);
    CHECK(copies.copy_for(0, 8, 8, 1).is_new);
}

TEST_CASE("ranks refuse fewer shards, and a shard that changes what lasts") {
    const TilePtr lasts = lasting_tile();
    Recording recording;
    set_shard(0, 2);
    recording.task({updates(lasts)});
    CHECK_THROWS_WITH(choose_owners(*recording_program(), {0, 2}),
                      Catch::Contains("changes a tensor that lasts"));
    CHECK_THROWS_WITH(choose_owners(*recording_program(), {0, 3}),
                      Catch::Contains("2 shards of the batch for 3 ranks"));
}

TEST_CASE("the fingerprint of a program changes with its tasks") {
    const auto of = [](int tasks) {
        Recording recording;
        for (int i = 0; i < tasks; ++i) recording.task({writes(recording.temporary())});
        return fingerprint(*recording_program());
    };
    CHECK(of(3) == of(3));
    CHECK(of(3) != of(4));
}

}  // namespace nn::engine_test
