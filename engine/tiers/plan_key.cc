// The key of a program's plan (tiers/found_plan.h).
#include <cstring>

#include "engine/graph/passes/loops.h"
#include "engine/tiers/found_plan.h"
#include "engine/tiers/plan_line.h"

namespace nn {
namespace {

class Key {
public:
    uint64_t value() const { return hash_; }
    void add(uint64_t number) {
        hash_ = (hash_ ^ number) * 0x9E3779B97F4A7C15u;
        hash_ ^= hash_ >> 32;
    }
    void add(const char* text) {
        for (; *text; ++text) add(uint64_t(static_cast<unsigned char>(*text)));
        add(uint64_t(0));
    }

private:
    uint64_t hash_ = 1;
};

// Tiles that are not placed are the same for any plan: those of a batch persist in one program and
// are inputs of another.
void add_tiles(const ProgramLines& lines, Key& key) {
    key.add(uint64_t(lines.tiles().size()));
    for (uint32_t tile = 0; tile < lines.tiles().size(); ++tile) {
        key.add(uint64_t(lines.tiles()[tile]->bytes));
        key.add(lines.is_placed(tile) ? 1 + uint64_t(lines.persists(tile)) : uint64_t(0));
    }
}

void add_tasks(const Program& program, const Accesses& accesses, Key& key) {
    const char* layer = "";
    for (size_t t = 0; t < program.tasks.size(); ++t) {
        const Task& task = program.tasks[t];
        key.add(uint64_t(int64_t(task.iteration)));
        for (const auto* a = accesses.begin(uint32_t(t)); a != accesses.end(uint32_t(t)); ++a)
            key.add(uint64_t(a->tile) * 4 + uint64_t(a->mode));
        if (std::strcmp(layer, task.arg.layer) == 0) continue;
        layer = task.arg.layer;
        key.add(layer);
    }
}

}  // namespace

uint64_t plan_key(const Program& program, const std::vector<double>& seconds,
                  const PlanLimits& limits) {
    Key key;
    for (const int64_t number : {limits.memory, limits.reserved, limits.rest,
                                 int64_t(limits.rates.workers), int64_t(limits.rates.two_links)})
        key.add(uint64_t(number));
    for (const LevelLimits& level : limits.below)
        key.add(uint64_t(level.memory)), key.add(uint64_t(level.reserved));
    key.add(uint64_t(program.order_is_fixed));
    if (const auto lines = lines_for(program, seconds, limits)) add_tiles(*lines, key);
    add_tasks(program, accesses_without_gates(program), key);
    for (const Program::Loop& loop : program.loops)
        for (const size_t number : {loop.begin, loop.end})
            key.add(uint64_t(number) * loop.iterations);
    for (const Program::Microbatch& microbatch : program.microbatches)
        key.add(uint64_t(microbatch.begin));
    return key.value();
}

LinkBytes link_bytes(const Program& program, const std::vector<double>& seconds,
                     const PlanLimits& limits) {
    double computing = 0;
    const std::vector<uint32_t> runs = runs_of_tasks(program);
    for (size_t t = 0; t < seconds.size(); ++t) computing += runs[t] * seconds[t];
    LinkBytes out;
    for (const TierRates& rates : limits.rates_of_levels())
        out.push_back(computing * rates.link_rate);
    return out;
}

}  // namespace nn
