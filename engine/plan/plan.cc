#include "engine/plan/plan.h"

#include <algorithm>
#include <numeric>

#include "engine/graph/cost.h"
#include "engine/graph/passes/loops.h"
#include "engine/machine/description.h"
#include "engine/residency/homes.h"
#include "engine/workers/rates.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

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

// The times of this kind; measures them if necessary.
static const TaskTimes& times_for(const Program& program, Times kind) {
    static const TaskTimes nominal;
    static TaskTimes measured;  // in this process
    if (kind == Times::measured) measured.measure(program.tasks);
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
    const double step = std::accumulate(nominal.begin(), nominal.end(), 0.0);
    if (step < long_step) return nominal;
    if (!machine_is_described() && tiers().has_disk()) measure_tier_disk();
    return task_seconds(program, Times::measured);
}

double share_recomputed(const Program& program, Times times) {
    if (program.recomputed_bytes == 0) return 0;
    const std::vector<double> seconds = task_seconds(program, times);
    const std::vector<uint32_t> runs = runs_of_tasks(program);
    double all = 0, repeated = 0;
    for (size_t t = 0; t < seconds.size(); ++t) {
        all += runs[t] * seconds[t];
        if (program.tasks[t].repeats) repeated += runs[t] * seconds[t];
    }
    return all > 0 ? repeated / all : 0;
}

// Adds the iterations of loops that were not simulated. They take as long as the last one that was.
static void add_iterations(std::vector<SimulationResult>& results, const Parts& parts,
                           const TaskTimes& times, int steps, int workers, double submission) {
    uint32_t missing = 0;
    for (const Program* part : parts)
        for (const Program::Loop& loop : part->loops)
            missing = std::max(missing,
                               loop.iterations - std::min(loop.iterations, simulated_iterations));
    if (missing == 0) return;
    const Simulation shorter(simulated_step(parts, times, simulated_iterations - 1), steps);
    const auto less = shorter.run(workers, submission);
    for (size_t rank = 0; rank < results.size(); ++rank) {
        results[rank].seconds += missing * (results[rank].seconds - less[rank].seconds);
        results[rank].busy += missing * (results[rank].busy - less[rank].busy);
    }
}

// Task times vary between steps, and the memory peak with them. So perturbed schedules are
// simulated and the worst peak is kept; one schedule has a worker less, as if another program used
// its core.
std::vector<SimulationResult> plan(const Parts& parts, Times kind, int steps) {
    constexpr double submission = 3e-6;    // seconds per task
    constexpr size_t many_tasks = 100000;  // from here on, one schedule only
    constexpr uint64_t variants = 6;
    for (const Program* part : parts) times_for(*part, kind);  // measures those of all parts
    const TaskTimes& times = times_for(*parts[0], kind);
    const Simulation simulation(simulated_step(parts, times), steps);
    // A team, of CPU workers, is simulated as one worker.
    const bool in_team = parts[0]->in_team && planned_gpus() == 0;
    const int workers = in_team ? 1 : planned_workers();
    std::vector<SimulationResult> out = simulation.run(workers, submission);
    add_iterations(out, parts, times, steps, workers, submission);
    for (SimulationResult& result : out) result.busy *= in_team ? planned_workers() : 1;
    const auto keep_worst = [&](const std::vector<SimulationResult>& others) {
        for (size_t rank = 0; rank < out.size(); ++rank) {
            if (others[rank].peak <= out[rank].peak) continue;
            out[rank].peak = others[rank].peak;
            std::ranges::copy(others[rank].by_kind, out[rank].by_kind);
        }
    };
    if (simulation.step().seconds.size() >= many_tasks) return out;
    if (workers > 1) keep_worst(simulation.run(workers - 1, submission));
    for (uint64_t variant = 1; variant <= variants; ++variant)
        keep_worst(simulation.run(workers, submission, perturbed(simulation.step(), variant)));
    return out;
}

}  // namespace nn
