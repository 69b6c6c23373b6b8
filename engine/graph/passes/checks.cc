// Checks of a recorded program, with errors for the author of the compiled function.
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/graph/passes/passes.h"

namespace nn {
namespace {

using TileSet = std::unordered_set<TilePtr>;

TileSet inputs_of(const Program& program) {
    const std::vector<TilePtr> tiles = tiles_of(program.inputs);
    return {tiles.begin(), tiles.end()};
}

}  // namespace

void check_ends(Program& program) {
    for (size_t i = 0; i < program.inputs.size(); ++i) {
        const Tensor& input = program.inputs[i];
        if (!input) fail("compile: input %zu is missing", i + 1);
        for (int64_t k = 0; k < input.tiles(); ++k)
            if (input.tile(k)->recording != program.number)
                fail("compile: input %zu was not made for this recording", i + 1);
    }
    for (size_t i = 0; i < program.outputs.size(); ++i) {
        const Tensor& output = program.outputs[i];
        if (!output) fail("compile: result %zu is missing", i + 1);
        if (output.stale())
            fail("compile: result %zu is a view of a tensor that was changed in place since",
                 i + 1);
        for (int64_t k = 0; k < output.tiles(); ++k) {
            const uint32_t recording = output.tile(k)->recording;
            if (recording && recording != program.number)
                fail("compile: result %zu belongs to another compiled function", i + 1);
        }
    }
}

// A program works on copies of its inputs, so a change in place would be lost.
void check_arguments(Program& program) {
    const TileSet inputs = inputs_of(program);
    for (const Task& task : program.tasks)
        for (int i = 0; i < task.handles; ++i)
            if (task.writes(i) && inputs.count(task.tiles[i]))
                fail(
                    "compile: %s changes an argument of the compiled function in place; change a "
                    "clone() of it and return that, or use a tensor from outside",
                    task.arg.op);
}

// Inputs are filled at the start of a run.
void check_values(Program& program) {
    TileSet written = inputs_of(program);
    const auto has_value = [&](const TilePtr& tile) {
        return tile->persists() || written.count(tile);
    };
    for (const Task& task : program.tasks) {
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::write && !has_value(task.tiles[i]))
                fail("compile: %s reads an input that is not among those given at the end",
                     task.arg.op);
        for (int i = 0; i < task.handles; ++i)
            if (task.writes(i)) written.insert(task.tiles[i]);
    }
    for (size_t i = 0; i < program.outputs.size(); ++i)
        for (int64_t k = 0; k < program.outputs[i].tiles(); ++k)
            if (!has_value(program.outputs[i].tile(k)))
                fail("compile: result %zu was never given a value", i + 1);
}

}  // namespace nn
