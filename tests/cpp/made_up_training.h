// Training programs made by hand, which cannot run, and the values that their tasks would compute.
#pragma once
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/graph/program.h"

namespace nn::engine_test {

constexpr uint32_t recording = 77;

// Of the recording, or a persistent one.
inline TilePtr new_tile(size_t bytes, bool persists) {
    const InRecording in(persists ? 0 : recording);
    return std::make_shared<Tile>(bytes);
}

using Uses = std::vector<std::pair<TilePtr, Mode>>;

// FLOPs name a task: copies have those of the original.
inline void add_task(Program& program, const char* layer, const Uses& uses,
                     int32_t iteration = -1) {
    Task task{};
    task.arg.op = "test", task.arg.layer = layer;
    task.arg.flops = float(program.tasks.size() + 1);
    task.iteration = iteration;
    for (const auto& [tile, mode] : uses) task.add_tile(tile, mode);
    program.tasks.push_back(std::move(task));
}

struct Training {
    Program program{recording};
    std::vector<TilePtr> persistent;
};

// The values of tiles, as numbers that depend on everything that computed them.
class Values {
public:
    void run(const Task& task) {
        auto value = uint64_t(task.arg.flops);
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::write) value = mixed(value, of(task.tiles[i]));
        for (int i = 0; i < task.handles; ++i)
            if (task.writes(i)) values_[task.tiles[i].get()] = mixed(value, uint64_t(i));
    }
    void run(const Program& program) {
        for_each_run(program, 0,
                     [&](size_t t, uint32_t, const Program::Loop*) { run(program.tasks[t]); });
    }
    uint64_t of(const TilePtr& tile) { return values_[tile.get()]; }

private:
    static uint64_t mixed(uint64_t a, uint64_t b) {
        return (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xFF51AFD7ED558CCDu;
    }
    std::unordered_map<const Tile*, uint64_t> values_;
};

}  // namespace nn::engine_test
