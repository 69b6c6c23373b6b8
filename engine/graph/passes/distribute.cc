#include "engine/graph/passes/distribute.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"
#include "engine/graph/passes/copies.h"
#include "engine/graph/passes/owners.h"
#include "engine/graph/passes/urgency.h"

namespace nn {
namespace {

constexpr int everybody = -2;

// The ranks that have a tile's current value.
struct Holders {
    bool all = true;
    std::vector<int> ranks;  // unless all
    bool has(int rank) const { return all || std::ranges::find(ranks, rank) != ranks.end(); }
    void only(int rank) { all = rank == everybody, ranks = {rank}; }
};

const Kernel& transfer_kernel(Task::Transfer transfer) {
    const auto make = [](const char* name) {
        Kernel kernel{name, Bound::memory, {}, "", 0, -1};
        return kernel;
    };
    static const Kernel send = make("send"), receive = make("receive");
    return transfer == Task::Transfer::send ? send : receive;
}

Task transfer_task(Task::Transfer transfer, const TilePtr& tile, int peer, int64_t tag,
                   const char* layer) {
    Task task;
    std::memset(&task.arg, 0, sizeof task.arg);
    task.arg.kernel = &transfer_kernel(transfer);
    task.arg.op = task.arg.kernel->name.c_str();
    task.arg.layer = layer;
    task.arg.bytes = float(tile->bytes);
    task.transfer = transfer, task.peer = peer, task.tag = tag;
    task.add_tile(tile, transfer == Task::Transfer::send ? Mode::read : Mode::write);
    return task;
}

class Distribution {
public:
    Distribution(Program& program, const RankOf& me, int64_t first_tag)
        : program_(program),
          me_(me),
          next_tag_(first_tag),
          accesses_(program.accesses()),
          urgencies_(urgencies(program)),
          holders_(accesses_.tiles),
          tile_of_(accesses_.tiles),
          is_mine_(program.tasks.size() + 1),
          starts_(program.tasks.size() + 1) {
        for (size_t t = 0; t < tasks().size(); ++t)
            for (int i = 0; i < tasks()[t].handles; ++i)
                tile_of_[number(t, i)] = tasks()[t].tiles[i];
    }

    void run() {
        find_wishes();
        find_copies();
        find_shared();
        for (size_t t = 0; t < tasks().size(); ++t) {
            urgency_ = urgencies_[t];
            place(t);
            share_results(t);
        }
        starts_.back() = own_.size();
        share_outputs();
        find_kept_elsewhere();
        replace_tasks();
    }

private:
    std::vector<Task>& tasks() { return program_.tasks; }
    uint32_t number(size_t t, int i) const { return accesses_.begin(uint32_t(t))[i].tile; }
    // What only owners keep, and which tasks of other ranks read it.
    void find_copies() {
        for (uint32_t tile = 0; tile < accesses_.tiles; ++tile)
            if (const Tile& t = *tile_of_[tile]; is_owned(t) && t.owner != nobody)
                holders_[tile].only(t.owner);
        copies_.resize(size_t(me_.ranks));
        for (size_t t = 0; t < tasks().size(); ++t) {
            const Task& task = tasks()[t];
            const int rank = program_.shards == 0 ? executor(t) : shard_rank(task);
            if (rank == nobody) continue;  // its own rank is chosen later
            for (int i = 0; i < task.handles; ++i) {
                const Tile& tile = *task.tiles[i];
                for (int reader : ranks_of(rank))
                    if (is_copied(tile, reader))
                        copies_[size_t(reader)].add({number(t, i), t, tile.bytes, task.arg.layer});
            }
        }
    }
    std::vector<int> ranks_of(int rank) const {
        if (rank != everybody) return {rank};
        std::vector<int> all(static_cast<size_t>(me_.ranks));
        std::iota(all.begin(), all.end(), 0);
        return all;
    }
    static bool is_copied(const Tile& tile, int reader) {
        return is_owned(tile) && tile.owner != nobody && tile.owner != reader;
    }
    int shard_rank(const Task& task) const {
        if (task.shard < 0) return nobody;
        return part_of(task.shard, program_.shards, me_.ranks);
    }

    // The owner of the tile that a task's result changes later, or nobody: a sum of gradients is
    // best computed there.
    void find_wishes() {
        std::vector<int> wish_of_tile(accesses_.tiles, nobody);
        wishes_.assign(tasks().size(), nobody);
        for (size_t t = tasks().size(); t-- > 0;) {
            const Task& task = tasks()[t];
            if (task.shard >= 0) continue;
            wishes_[t] = owner_of(tasks()[t]);
            for (int i = 0; i < task.handles && wishes_[t] == nobody; ++i)
                if (task.writes(i)) wishes_[t] = wish_of_tile[number(t, i)];
            const bool is_owner = owner_of(tasks()[t]) != nobody;
            for (int i = 0; i < task.handles; ++i) {
                int& wish = wish_of_tile[number(t, i)];
                if (task.modes[i] == Mode::write)
                    wish = nobody;
                else if (is_owner || wish == nobody)
                    wish = wishes_[t];
            }
        }
    }

    // The rank that has to receive the fewest bytes; of several the one that reads the result, else
    // one by the tile's number, to spread the work.
    int cheapest(size_t t) {
        const Task& task = tasks()[t];
        std::vector<std::pair<int, size_t>> present;  // rank, bytes of what it has
        for (int i = 0; i < task.handles; ++i) {
            const Holders& holders = holders_[number(t, i)];
            if (task.modes[i] == Mode::write || holders.all) continue;
            for (int rank : holders.ranks) {
                auto at = std::ranges::find(present, rank, &std::pair<int, size_t>::first);
                if (at == present.end()) at = present.insert(at, {rank, 0});
                at->second += task.tiles[i]->bytes;
            }
        }
        if (present.empty()) return everybody;  // all ranks have all it reads
        size_t most = 0;
        for (const auto& [rank, bytes] : present) most = std::max(most, bytes);
        std::vector<int> best;
        for (const auto& [rank, bytes] : present)
            if (bytes == most) best.push_back(rank);
        if (std::ranges::find(best, wishes_[t]) != best.end()) return wishes_[t];
        return best[number(t, 0) % best.size()];
    }

    int executor(size_t t) {
        if (const int rank = shard_rank(tasks()[t]); rank != nobody) return rank;
        const int owner = owner_of(tasks()[t]);
        if (owner != nobody) return owner;
        return program_.shards > 0 ? cheapest(t) : everybody;
    }

    void place(size_t t) {
        const int rank = executor(t);
        starts_[t] = own_.size();
        Task& task = tasks()[t];
        for (int reader : ranks_of(rank))
            for (int i = 0; i < task.handles; ++i)
                if (task.modes[i] == Mode::write)
                    continue;
                else if (is_copied(*tile_of_[number(t, i)], reader) && !task.writes(i))
                    use_copy(t, i, reader);
                else
                    bring(number(t, i), reader, task.arg.layer, computed_here(t, reader));
        for (int i = 0; i < task.handles; ++i) {
            if (!task.writes(i)) continue;
            holders_[number(t, i)].only(rank);
            if (!is_owned(*tile_of_[number(t, i)])) continue;
            for (Copies& copies : copies_) copies.forget(number(t, i));
        }
        is_mine_[t] = rank == everybody || rank == me_.rank;
        task.urgency = urgency_;
        if (is_mine_[t]) own_.push_back(std::move(task));
    }

    // Lets a task read its copy of a tile that another rank owns.
    void use_copy(size_t t, int i, int reader) {
        Task& task = tasks()[t];
        const TilePtr& tile = tile_of_[number(t, i)];
        const auto [buffer, is_new] = copies_[size_t(reader)].copy_for(
            number(t, i), t, tile->bytes, reader == me_.rank ? program_.number : 0);
        if (is_new) transfer(tile, tile->owner, buffer, reader, task.arg.layer);
        if (reader == me_.rank) task.tiles[i] = buffer;
    }

    // A temporary that the task reads and its rank computes, or null.
    TilePtr computed_here(size_t t, int rank) {
        const Task& task = tasks()[t];
        for (int i = 0; i < task.handles; ++i) {
            const Holders& holders = holders_[number(t, i)];
            const bool is_read = task.modes[i] != Mode::write;
            const TilePtr& tile = tile_of_[number(t, i)];
            if (is_read && !tile->persists() && !holders.all && holders.has(rank)) return tile;
        }
        return nullptr;
    }

    // Sends the value of a tile to a rank that lacks it. It is received after `after`, if given, is
    // computed: before, it would only take memory.
    void bring(uint32_t tile, int to, const char* layer, const TilePtr& after = nullptr) {
        Holders& holders = holders_[tile];
        if (holders.has(to)) return;
        const int from = holders.ranks[size_t(to) % holders.ranks.size()];
        transfer(tile_of_[tile], from, tile_of_[tile], to, layer);
        if (after && to == me_.rank) own_.back().add_tile(after, Mode::read);
        holders.ranks.push_back(to);
        holders.all = int(holders.ranks.size()) == me_.ranks;
    }

    // As urgent as the task that needs it or, for results, as the last one that wrote it.
    void transfer(const TilePtr& source, int from, const TilePtr& target, int to,
                  const char* layer) {
        const int64_t tag = next_tag_++;
        const auto add = [&](Task::Transfer kind, const TilePtr& tile, int peer) {
            own_.push_back(transfer_task(kind, tile, peer, tag, layer));
            own_.back().urgency = urgency_;
        };
        if (from == me_.rank) add(Task::Transfer::send, source, to);
        if (to == me_.rank) add(Task::Transfer::receive, target, from);
    }

    // Tiles of which every rank needs the last value: weights that all keep, and results.
    void find_shared() {
        last_write_.assign(accesses_.tiles, SIZE_MAX);
        std::vector<char> is_output(accesses_.tiles, 0);
        for (const TilePtr& tile : tiles_of(program_.outputs))
            if (const auto at = accesses_.numbers.find(tile.get()); at != accesses_.numbers.end())
                is_output[at->second] = 1;
        for (size_t t = 0; t < tasks().size(); ++t)
            for (int i = 0; i < tasks()[t].handles; ++i) {
                const Tile& tile = *tasks()[t].tiles[i];
                const bool is_shared =
                    is_output[number(t, i)] || (tile.persists() && !is_owned(tile));
                if (is_shared && tasks()[t].writes(i)) last_write_[number(t, i)] = t;
            }
    }

    void share_results(size_t t) {
        for (const auto* a = accesses_.begin(uint32_t(t)); a != accesses_.end(uint32_t(t)); ++a)
            for (int rank = 0; last_write_[a->tile] == t && rank < me_.ranks; ++rank)
                bring(a->tile, rank, "");
    }

    // Those that no task writes.
    void share_outputs() {
        for (const TilePtr& tile : tiles_of(program_.outputs))
            if (const auto at = accesses_.numbers.find(tile.get()); at != accesses_.numbers.end())
                for (int rank = 0; rank < me_.ranks; ++rank) bring(at->second, rank, "");
    }

    void find_kept_elsewhere() {
        for (const TilePtr& tile : tile_of_)
            if (is_owned(*tile) && tile->owner != nobody && tile->owner != me_.rank)
                program_.kept_elsewhere.push_back(tile);
    }

    void replace_tasks() {
        auto& microbatches = program_.microbatches;
        std::erase_if(microbatches,
                      [&](const Program::Microbatch& m) { return !is_mine_[m.begin]; });
        for (auto& microbatch : microbatches) microbatch.begin = starts_[microbatch.begin];
        for (auto& step : program_.scalar_steps) step.before_task = starts_[step.before_task];
        for (auto& backward : program_.backwards)
            backward = {starts_[backward.begin], starts_[backward.end]};
        program_.tasks = std::move(own_);
        program_.tasks_changed();
    }

    Program& program_;
    const RankOf me_;
    int64_t next_tag_;
    const Accesses& accesses_;
    const std::vector<float> urgencies_;  // of the tasks
    float urgency_ = 0;                   // of the task that is being placed
    std::vector<Holders> holders_;
    std::vector<size_t> last_write_;  // of shared tiles: the task
    std::vector<Copies> copies_;      // of each rank
    std::vector<TilePtr> tile_of_;
    std::vector<int> wishes_;
    std::vector<char> is_mine_;   // each task
    std::vector<size_t> starts_;  // how many own tasks come before each task
    std::vector<Task> own_;
};

struct Hash {
    uint64_t value = 1469598103934665603ull;  // FNV-1a
    void add(const void* data, size_t bytes) {
        for (size_t i = 0; i < bytes; ++i)
            value = (value ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
    }
    template <class T> void add(T number) { add(&number, sizeof number); }
};

}  // namespace

void distribute(Program& program, const RankOf& me, int64_t first_tag) {
    Distribution(program, me, first_tag).run();
}

uint64_t fingerprint(Program& program) {
    Hash hash;
    hash.add(program.shards);
    const Accesses& accesses = program.accesses();
    for (uint32_t t = 0; t < accesses.tasks(); ++t) {
        const Task& task = program.tasks[t];
        hash.add(task.arg.kernel->name.data(), task.arg.kernel->name.size());
        // Not the parameters, whose padding has no defined value.
        hash.add(task.arg.flops);
        hash.add(task.arg.dtype);
        for (int i = 0; i < task.arg.rank; ++i) hash.add(task.arg.extent[i]);
        hash.add(task.shard);
        for (int i = 0; i < task.handles; ++i) {
            hash.add(accesses.begin(t)[i].tile);
            hash.add(task.modes[i]);
            hash.add(task.tiles[i]->bytes);
            hash.add(task.tiles[i]->only_owner ? task.tiles[i]->owner : nobody);
        }
    }
    return hash.value;
}

}  // namespace nn
