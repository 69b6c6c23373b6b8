// Drops tasks whose results nobody uses. A task is needed if it writes a tile that persists, the
// last value of an output, or a value that a needed task reads.
#include "engine/graph/passes/passes.h"

namespace nn {
namespace {

// The tasks whose results outlive the program's temporaries.
std::vector<char> roots(Program& program) {
    const Accesses& accesses = program.accesses();
    std::vector<char> needed(accesses.tasks(), 0);
    std::vector<char> is_output(accesses.tiles, 0);
    for (const TilePtr& tile : tiles_of(program.outputs))
        if (const auto at = accesses.numbers.find(tile.get()); at != accesses.numbers.end())
            is_output[at->second] = 1;
    for (uint32_t t = accesses.tasks(); t-- > 0;)
        for (int i = 0; i < program.tasks[t].handles; ++i) {
            if (!program.tasks[t].writes(i)) continue;
            char& last_value = is_output[accesses.begin(t)[i].tile];
            if (!program.tasks[t].tiles[i]->recording || last_value) needed[t] = 1;
            last_value = 0;
        }
    return needed;
}

}  // namespace

void prune(Program& program) {
    std::vector<char> needed = roots(program);
    const Edges before = predecessors(program.accesses());
    for (uint32_t t = before.tasks(); t-- > 0;)
        for (const Edge* e = before.begin(t); needed[t] && e != before.end(t); ++e)
            if (e->kind == Dependency::value) needed[e->task] = 1;
    program.keep_tasks(needed);
}

}  // namespace nn
