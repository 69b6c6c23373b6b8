// The plan of a program on any number of levels of slots, and the memory for it.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/graph/passes/loops.h"
#include "engine/tiers/levels.h"

namespace nn {

struct LevelLimits {
    int64_t memory = 0;    // bytes for tiles
    int64_t reserved = 0;  // of these, for everything but the program
    TierRates rates{};     // of the transfers between it and what is below it
    const char *tier = "RAM", *setting = "memory.ram";  // for errors
    // The reserve in another number of bytes of memory, if it depends on that.
    std::function<int64_t(int64_t)> reserved_in{};

    // The least memory that leaves so many bytes beside its reserve, or a part of the reserve.
    int64_t memory_for(int64_t bytes, int64_t parts = 1) const {
        int64_t out = bytes;
        for (int64_t before = -1; before != out;) {
            before = out;
            out = bytes + (reserved_in ? reserved_in(out) : reserved) / parts;
        }
        return out;
    }
};

// Of the memory in which tasks find their tiles.
struct PlanLimits : LevelLimits {
    int64_t rest = 0;  // bytes for small tiles, inputs and outputs; 0: they are in `memory` too
    std::vector<LevelLimits> below{};  // the levels between it and the disk, from upper to lower
    int64_t disk = 0;                  // bytes that are free for tiles; 0: any number
    // With so many bytes beside half of the reserve, the program needs no plan; 0: it needs one.
    int64_t all_tiles = 0;

    size_t levels() const { return below.size() + 1; }
    const LevelLimits& level(size_t i) const { return i == 0 ? *this : below[i - 1]; }
    std::vector<TierRates> rates_of_levels() const {
        std::vector<TierRates> out;
        for (size_t i = 0; i < levels(); ++i) out.push_back(level(i).rates);
        return out;
    }
};

// What a search chooses besides placements. cut: of the loop, if the program has one.
struct PlanChoice {
    LoopCut cut{};
    OrderChoice order;
};

// first: of the first run; next: of a run that begins with the deferred tasks of the run before;
// last: of these deferred tasks alone. next and last are empty if no tasks are deferred.
struct ProgramPlan {
    // The program that the plan is for, if it is not the given one but that with its loop cut
    // (graph/passes/loops.h).
    std::unique_ptr<Program> cut;
    std::unique_ptr<ProgramLines> lines;
    PlanChoice choice;
    uint32_t blocks = 0;  // of the memory of the slots
    RunPlan first, next, last;
    // With a loop, first and next end where it begins. Its first iteration, the others and the tail
    // follow.
    RunPlan iteration, next_iteration, tail;
    int64_t least_moved = 0;  // bytes of a run, by any placement
    // The levels below, whose runs are those of first, next and last: as `blocks` and, for any
    // placement of the transfers of the level above, `least_moved`.
    struct Level {
        uint32_t blocks = 0;
        int64_t least_moved = 0;
    };
    std::vector<Level> below;

    // Of each task of the lines, given those of the program.
    const std::vector<double>& seconds(const std::vector<double>& of_program) const {
        return cut ? cut->seconds : of_program;
    }
    const RunPlan& steady() const { return lines->has_deferred() ? next : first; }
    RunPlan& steady() { return lines->has_deferred() ? next : first; }
    uint32_t iterations() const {
        return cut && !cut->loops.empty() ? cut->loops[0].iterations : 0;
    }
    // The parts of a steady run, each with the number of times that it runs.
    std::vector<std::pair<const RunPlan*, uint32_t>> steady_parts() const {
        if (iterations() == 0) return {{&steady(), 1}};
        return {{&steady(), 1}, {&iteration, 1}, {&next_iteration, iterations() - 1}, {&tail, 1}};
    }
    std::vector<uint32_t> blocks_of_levels() const {
        std::vector<uint32_t> out = {blocks};
        for (const Level& level : below) out.push_back(level.blocks);
        return out;
    }
};

// Memory for slots that exists. blocks: of each level. place_of: where a persistent tile is now.
// others: tiles in slots that the program does not use.
struct ExistingSlots {
    std::vector<uint32_t> blocks;
    std::vector<const Tile*> others;
    std::function<TilePlace(const Tile&)> place_of;
};

}  // namespace nn
