#include "engine/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "engine/graph/cost.h"
#include "engine/graph/passes/loops.h"
#include "engine/machine/description.h"
#include "engine/memory/arena.h"
#include "engine/runtime/homes.h"
#include "engine/runtime/rates.h"
#include "engine/runtime/workers.h"

namespace nn {
namespace {

using TileSet = std::unordered_set<const Tile*>;

void add_block(SimulatedStep& step, const Tile& tile, bool persists) {
    if (step.accesses.number_of(&tile) == step.blocks.size())
        step.blocks.push_back({int64_t(arena_bytes(tile.bytes)), tile.kind, persists});
}

// The lives of tiles: those that are private to the iterations of a loop have one in each.
class Lives {
public:
    explicit Lives(const Program& program) {
        for (const Program::Loop& loop : program.loops)
            private_.merge(private_tiles(program, loop));
    }
    uint32_t of(const Tile* tile, uint32_t iteration, const Program::Loop* loop) {
        const auto [at, is_new] = lives_.try_emplace(tile, Life{iteration, number_});
        Life& life = at->second;
        if (!is_new && loop && life.iteration != iteration && private_.count(tile))
            life = {iteration, number_};
        if (life.number == number_) ++number_;
        return life.number;
    }

private:
    struct Life {
        uint32_t iteration, number;
    };
    std::unordered_set<const Tile*> private_;
    std::unordered_map<const Tile*, Life> lives_;  // the latest ones
    uint32_t number_ = 0;                          // of the next life
};

void add_persistent(SimulatedStep& step, const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors)
        for (int64_t i = 0; i < tensor.tiles(); ++i) add_block(step, *tensor.tile(i), true);
}

// A hash of two numbers, in [0, 1) (the finaliser of MurmurHash3).
double hash_of(uint64_t seed, uint64_t i) {
    uint64_t x = seed * 0x9E3779B97F4A7C15u + i + 1;
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
    return double((x ^ (x >> 33)) >> 11) * 0x1p-53;
}

// Multiplies task times by 0.9 to 1.3; in every second variant some tasks also lose their core.
std::vector<double> perturbed(const SimulatedStep& step, uint64_t variant) {
    constexpr double share_stalled = 0.02, stall = 5e-3;
    std::vector<double> out;
    for (size_t i = 0; i < step.seconds.size(); ++i) {
        out.push_back(step.seconds[i] * (0.9 + 0.4 * hash_of(variant, i)));
        if (variant % 2 == 0 && hash_of(variant + 100, i) < share_stalled) out.back() += stall;
    }
    return out;
}

}  // namespace

SimulatedStep simulated_step(const Program& program, const TaskTimes& times, uint32_t iterations) {
    SimulatedStep step;
    const std::vector<Task>& tasks = program.tasks;
    add_persistent(step, program.inputs);
    add_persistent(step, program.outputs);
    TileSet made_before;  // before the step
    for (size_t t = 0; t < program.step_begin; ++t)
        for (int i = 0; i < tasks[t].handles; ++i) made_before.insert(tasks[t].tiles[i].get());
    const int team = planned_gpus() > 0 ? 1 : planned_workers();
    Lives lives(program);
    const auto add = [&](size_t t, uint32_t iteration, const Program::Loop* loop) {
        const Task& task = tasks[t];
        for (int i = 0; i < task.handles; ++i) {
            const Tile& tile = *task.tiles[i];
            add_block(step, tile, !tile.recording || made_before.count(&tile));
            step.accesses.add(step.accesses.number_of(&tile), task.modes[i]);
            step.lives.push_back(lives.of(&tile, iteration, loop));
        }
        step.accesses.end_task();
        step.seconds.push_back(times.seconds(task) / (task.arg.in_team && task.splits ? team : 1));
        step.priorities.push_back(task.priority - later_priority(loop, iteration));
    };
    for_each_run(program, program.step_begin, add, iterations);
    return step;
}

// The times of this kind; measures them if necessary.
static const TaskTimes& times_for(const Program& program, Times kind) {
    static const TaskTimes nominal;
    static TaskTimes measured;  // in this process
    if (kind == Times::measured) measured.measure(program.tasks, program.step_begin);
    return kind == Times::nominal ? nominal : measured;
}

std::vector<double> task_seconds(const Program& program, Times kind) {
    std::vector<double> out;
    const TaskTimes& times = times_for(program, kind);
    for (const Task& task : program.tasks) out.push_back(times.seconds(task));
    return out;
}

std::vector<double> placement_seconds(const Program& program) {
    constexpr double long_step = 0.2;  // seconds on one worker
    std::vector<double> nominal = task_seconds(program, Times::nominal);
    const double step =
        std::accumulate(nominal.begin() + ptrdiff_t(program.step_begin), nominal.end(), 0.0);
    if (step < long_step) return nominal;
    if (!machine_is_described() && tiers().ram > 0) measure_tier_disk();
    return task_seconds(program, Times::measured);
}

double share_recomputed(const Program& program, Times times) {
    if (program.recomputed_bytes == 0) return 0;
    const std::vector<double> seconds = task_seconds(program, times);
    const std::vector<uint32_t> runs = runs_of_tasks(program);
    double all = 0, repeated = 0;
    for (size_t t = program.step_begin; t < seconds.size(); ++t) {
        all += runs[t] * seconds[t];
        if (program.tasks[t].repeats) repeated += runs[t] * seconds[t];
    }
    return all > 0 ? repeated / all : 0;
}

// Adds the iterations of loops that were not simulated. They take as long as the last one that was.
static void add_iterations(SimulationResult& result, const Program& program, const TaskTimes& times,
                           int steps, int workers, double submission) {
    const auto missing = [](const Program::Loop& loop) {
        return loop.iterations - std::min(loop.iterations, simulated_iterations);
    };
    double share = 0;  // of the loops' iterations
    for (const Program::Loop& loop : program.loops) share = std::max<double>(share, missing(loop));
    if (share == 0) return;
    const Simulation shorter(simulated_step(program, times, simulated_iterations - 1), steps);
    const SimulationResult less = shorter.run(workers, submission);
    result.seconds += share * (result.seconds - less.seconds);
    result.busy += share * (result.busy - less.busy);
}

// Task times vary between steps, and the memory peak with them. So perturbed schedules are
// simulated and the worst peak is kept; one schedule has a worker less, as if another program used
// its core.
SimulationResult plan(const Program& program, Times kind, int steps) {
    constexpr double submission = 3e-6;    // seconds per task
    constexpr size_t many_tasks = 100000;  // from here on, one schedule only
    constexpr uint64_t variants = 6;
    const Simulation simulation(simulated_step(program, times_for(program, kind)), steps);
    // A team, of CPU workers, is simulated as one worker.
    const bool in_team = program.in_team && planned_gpus() == 0;
    const int workers = in_team ? 1 : planned_workers();
    SimulationResult out = simulation.run(workers, submission);
    add_iterations(out, program, times_for(program, kind), steps, workers, submission);
    if (in_team) out.busy *= planned_workers();
    const auto keep_worst = [&](const SimulationResult& other) {
        if (other.peak <= out.peak) return;
        out.peak = other.peak;
        std::copy(other.by_kind, other.by_kind + tile_kinds, out.by_kind);
    };
    if (simulation.step().seconds.size() >= many_tasks) return out;
    if (workers > 1) keep_worst(simulation.run(workers - 1, submission));
    for (uint64_t variant = 1; variant <= variants; ++variant)
        keep_worst(simulation.run(workers, submission, perturbed(simulation.step(), variant)));
    return out;
}

}  // namespace nn
