// Training programs made by hand, which cannot run, and the values that their tasks would compute.
#pragma once
#include <memory>
#include <random>
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

inline const char* const layer_names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

// The last tasks of a step: the norm of all gradients, and the updates of each layer's weight and
// moment, which are two persistent tiles. clips: updates read the norm.
inline void add_updates(Training& training, const std::vector<TilePtr>& gradient,
                        const TilePtr& norm, bool clips, bool replaces = false) {
    Program& p = training.program;
    for (size_t i = 0; i < gradient.size(); ++i)
        add_task(p, "", {{gradient[i], Mode::read}, {norm, i ? Mode::read_write : Mode::write}});
    for (size_t i = 0; i < gradient.size(); ++i) {
        const bool only_writes = replaces && i + 1 == gradient.size();
        Uses uses{{training.persistent[2 * i], only_writes ? Mode::write : Mode::read_write},
                  {training.persistent[2 * i + 1], Mode::read_write},
                  {gradient[i], Mode::read}};
        if (clips) uses.push_back({norm, Mode::read});
        add_task(p, layer_names[i], uses);
    }
}

// Layers with a weight and a moment; microbatches; updates after all gradients, with their norm or
// without. Sizes vary, and so do those of slots.
inline std::unique_ptr<Training> flat_training(std::mt19937& random, bool clips) {
    const auto below = [&](uint32_t n) { return uint32_t(random() % n); };
    auto out = std::make_unique<Training>();
    Program& p = out->program;
    const uint32_t layers = 2 + below(6), microbatches = 1 + below(3);
    std::vector<TilePtr> weight, gradient;
    for (uint32_t i = 0; i < layers; ++i) {
        const size_t bytes = (4 + below(3)) << 16;
        weight.push_back(new_tile(bytes, true));
        gradient.push_back(new_tile(bytes, false));
        out->persistent.insert(out->persistent.end(), {weight.back(), new_tile(bytes, true)});
    }
    const TilePtr norm = new_tile(8, false), loss = new_tile(8, false);
    for (uint32_t m = 0; m < microbatches; ++m) {
        if (microbatches > 1) p.microbatches.push_back({p.tasks.size(), 1});
        std::vector<TilePtr> result;
        for (uint32_t i = 0; i < layers; ++i) {
            result.push_back(new_tile(5 << 16, false));
            Uses uses;
            uses.reserve(3);  // GCC 12 warns of bounds if a list of two grows
            uses.emplace_back(weight[i], Mode::read), uses.emplace_back(result[i], Mode::write);
            if (i) uses.emplace_back(result[i - 1], Mode::read);
            add_task(p, layer_names[i], uses);
        }
        add_task(p, "", {{result.back(), Mode::read}, {loss, m ? Mode::read_write : Mode::write}});
        for (uint32_t i = layers; i-- > 0;)
            add_task(p, layer_names[i],
                     {{weight[i], Mode::read},
                      {result[i], Mode::read},
                      {gradient[i], m ? Mode::read_write : Mode::write}});
    }
    add_updates(*out, gradient, norm, clips);
    return out;
}

// A first microbatch, a loop of others, each with its rows of an input, and updates with the norm
// of all gradients or without it. replaces: the last update does not read its weight.
inline std::unique_ptr<Training> looped_training(std::mt19937& random, bool clips,
                                                 bool replaces = false) {
    auto out = std::make_unique<Training>();
    Program& p = out->program;
    const uint32_t layers = 2 + random() % 4, iterations = 4 + random() % 12;
    std::vector<TilePtr> weight, gradient;
    for (uint32_t i = 0; i < layers; ++i) {
        const size_t bytes = (4 + random() % 3) << 16;
        weight.push_back(new_tile(bytes, true));
        gradient.push_back(new_tile(bytes, false));
        out->persistent.insert(out->persistent.end(), {weight.back(), new_tile(bytes, true)});
    }
    const TilePtr norm = new_tile(8, false), loss = new_tile(8, false), batch = new_tile(8, true);
    const auto microbatch = [&](const TilePtr& rows, bool is_first) {
        const Mode adds = is_first ? Mode::write : Mode::read_write;
        p.microbatches.push_back({p.tasks.size(), 1});
        std::vector<TilePtr> result;
        for (uint32_t i = 0; i < layers; ++i) {
            result.push_back(new_tile(5 << 16, false));
            add_task(p, layer_names[i],
                     {{weight[i], Mode::read},
                      {result[i], Mode::write},
                      {i ? result[i - 1] : rows, Mode::read}});
        }
        add_task(p, "", {{result.back(), Mode::read}, {loss, adds}});
        for (uint32_t i = layers; i-- > 0;)
            add_task(p, layer_names[i],
                     {{weight[i], Mode::read}, {result[i], Mode::read}, {gradient[i], adds}});
    };
    const TilePtr first = new_tile(64, false), rows = new_tile(64, false);
    add_task(p, "", {{batch, Mode::read}, {first, Mode::write}});
    microbatch(first, true);
    p.loops.push_back({p.tasks.size(), 0, iterations, 0});
    for (uint32_t i = 0; i < iterations; ++i)
        add_task(p, "", {{batch, Mode::read}, {rows, Mode::write}}, int32_t(i));
    microbatch(rows, false);
    p.loops[0].end = p.tasks.size();
    add_updates(*out, gradient, norm, clips, replaces);
    return out;
}

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
        for_each_run(program,
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
