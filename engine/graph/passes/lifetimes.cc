// Finds the last use of every temporary, after which its memory is freed, and the bytes of a run.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "engine/graph/passes/loops.h"
#include "engine/graph/passes/passes.h"
#include "engine/memory/arena.h"

namespace nn {
namespace {

int64_t block_bytes(const TilePtr& tile) { return int64_t(arena_bytes(tile->bytes)); }

class Lifetimes {
public:
    explicit Lifetimes(Program& program)
        : program_(program), accesses_(program.accesses()), last_use_(accesses_.tiles) {
        for (uint32_t t = 0; t < accesses_.tasks(); ++t)
            for (const auto* a = accesses_.begin(t); a != accesses_.end(t); ++a)
                last_use_[a->tile] = t;
        alive_.resize(accesses_.tiles);
        program_.dies_after.assign(program_.tasks.size(), {});
        program_.die_at_end.clear();
        program_.read_first.clear();
        program_.info = {};
        for (Program::Loop& loop : program_.loops) {
            loop.dies_after.clear();
            private_.merge(private_tiles(program_, loop));
        }
    }

    // Outputs and unused inputs live to the end.
    void keep_ends() {
        for (const TilePtr& tile : tiles_of(program_.outputs))
            if (!tile->persists()) keep(tile);
        std::unordered_set<const Tile*> inputs;  // copied in before the first task
        for (const TilePtr& tile : tiles_of(program_.inputs)) {
            if (!inputs.insert(tile.get()).second) continue;
            add_live(tile);
            const auto at = accesses_.numbers.find(tile.get());
            if (at == accesses_.numbers.end())
                keep(tile);
            else
                alive_[at->second] = 1;
        }
        program_.info.peak_bytes = live_;
    }

    void walk() {
        for (uint32_t t = 0; t < accesses_.tasks(); ++t) {
            for_each_tile(t, [&](const TilePtr& tile, uint32_t number, Mode mode) {
                if (std::exchange(alive_[number], 1)) return;
                if (!tile->persists()) {
                    add_live(tile);
                    return;
                }
                add_persistent(*tile);
                if (mode != Mode::write) program_.read_first.push_back(tile);
            });
            program_.info.peak_bytes = std::max(program_.info.peak_bytes, live_);
            for_each_tile(t, [&](const TilePtr& tile, uint32_t number, Mode) {
                if (tile->persists() || last_use_[number] != t || kept_.count(tile.get())) return;
                dead_after(t, tile.get()).push_back(tile);
                live_ -= block_bytes(tile);
            });
        }
        add_unused();
        const std::vector<uint32_t> runs = runs_of_tasks(program_);
        for (uint32_t t = 0; t < runs.size(); ++t) {
            program_.info.flops += runs[t] * double(program_.tasks[t].arg.flops);
            program_.info.tasks += runs[t];
        }
        program_.info.tiles = int64_t(accesses_.tiles) + unused_;
    }

private:
    template <class F> void for_each_tile(uint32_t t, F visit) {
        const Task& task = program_.tasks[t];
        for (int i = 0; i < task.handles; ++i)
            visit(task.tiles[i], accesses_.begin(t)[i].tile, task.modes[i]);
    }

    void add_live(const TilePtr& tile) {
        live_ += block_bytes(tile);
        program_.info.temporary_bytes += block_bytes(tile);
    }

    // What has a value before an iteration of a loop lives until the loop ends.
    std::vector<TilePtr>& dead_after(uint32_t t, const Tile* tile) {
        for (Program::Loop& loop : program_.loops)
            if (t >= loop.begin && t < loop.end && !private_.count(tile)) return loop.dies_after;
        return program_.dies_after[t];
    }

    void add_persistent(const Tile& tile) {
        program_.info.persistent_bytes += int64_t(tile.bytes);
        add_planned(tile);
    }

    void add_planned(const Tile& tile) {
        if (tile.is_planned) program_.info.planned_bytes += int64_t(arena_bytes(tile.bytes));
    }

    // Tensors that exist during a planned step though no task uses them: its tasks read copies of
    // the batch.
    void add_unused() {
        std::unordered_set<const Tile*> seen;
        for (const TilePtr& tile : tiles_of(program_.lasting))
            if (!tile->only_owner && !accesses_.numbers.count(tile.get()) &&
                seen.insert(tile.get()).second)
                add_planned(*tile);
    }

    void keep(const TilePtr& tile) {
        if (!kept_.insert(tile.get()).second) return;
        program_.die_at_end.push_back(tile);
        if (!accesses_.numbers.count(tile.get())) ++unused_;
    }

    Program& program_;
    const Accesses& accesses_;
    std::vector<uint32_t> last_use_;
    std::vector<char> alive_;
    std::unordered_set<const Tile*> kept_, private_;  // private_: to iterations of loops
    int64_t live_ = 0, unused_ = 0;
};

}  // namespace

void find_lifetimes(Program& program) {
    Lifetimes lifetimes(program);
    lifetimes.keep_ends();
    lifetimes.walk();
}

}  // namespace nn
