// How the tasks of a step are divided among ranks, on programs made by hand: every rank's list is
// run by an interpreter, which must find the values of one rank.
#include "engine/graph/passes/distribute.h"

#include <map>

#include "engine/graph/passes/passes.h"
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
std::vector<Values> run_all(const std::vector<std::vector<Task>>& lists, const Values& before,
                            int64_t* messages) {
    std::vector<Values> values(lists.size(), before);
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
    for (int ranks = 1; ranks <= shards; ++ranks) {
        std::vector<TilePtr> weights, moments;
        Values before;
        for (int w = 0; w < 5; ++w) {
            weights.push_back(lasting_tile());
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
            distribute(part, {rank, ranks}, 3);
            CHECK(part.kept_elsewhere.size() < moments.size() + size_t(ranks == 1));
            lists.push_back(part.tasks);
        }
        int64_t messages = 0;
        const std::vector<Values> values = run_all(lists, before, &messages);
        for (const Values& of_rank : values) {
            for (const TilePtr& weight : weights)
                CHECK(of_rank.at(weight.get()) == alone[weight.get()]);
            CHECK(of_rank.at(step.loss.get()) == alone[step.loss.get()]);
        }
        for (const TilePtr& moment : moments)
            CHECK(values[size_t(moment->owner)].at(moment.get()) == alone[moment.get()]);
        // gradients and weights, and at most the norm's parts, the norm and the loss
        const int64_t least = ranks == 3 ? 0 : 2 * 5 * (ranks - 1);
        CHECK(messages >= least);
        CHECK(messages <= 2 * 5 * (ranks - 1) + 5 + 2 * ranks);
    }
}

TEST_CASE("ranks refuse fewer shards, and a shard that changes what lasts") {
    const TilePtr lasts = lasting_tile();
    Recording recording;
    set_shard(0, 2);
    recording.task({updates(lasts)});
    CHECK_THROWS_WITH(distribute(*recording_program(), {0, 2}, 0),
                      Catch::Contains("changes a tensor that lasts"));
    CHECK_THROWS_WITH(distribute(*recording_program(), {0, 3}, 0),
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
