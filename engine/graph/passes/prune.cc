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
            if (program.tasks[t].tiles[i]->persists() || last_value) needed[t] = 1;
            last_value = 0;
        }
    return needed;
}

// The tasks in the order of a run with two iterations of each loop, so that values reach the next
// one, and what they access. Rows of an iteration replace those of the iteration before.
struct Unrolled {
    std::vector<uint32_t> tasks;
    Accesses accesses;
};
Unrolled unrolled(const Program& program, const Accesses& accesses) {
    Unrolled out;
    out.accesses.tiles = accesses.tiles;
    const auto add = [&](size_t begin, size_t end) {
        for (auto t = uint32_t(begin); t < end; ++t) {
            const bool replaces = program.tasks[t].iteration >= 0;
            for (const auto* a = accesses.begin(t); a != accesses.end(t); ++a)
                out.accesses.add(a->tile,
                                 replaces && a->mode == Mode::write ? Mode::read_write : a->mode);
            out.accesses.end_task();
            out.tasks.push_back(t);
        }
    };
    size_t at = 0;
    for (const Program::Loop& loop : program.loops) {
        add(at, loop.end);
        add(loop.begin, loop.end);
        at = loop.end;
    }
    add(at, program.tasks.size());
    return out;
}

}  // namespace

void prune(Program& program) {
    std::vector<char> needed = roots(program);
    const Unrolled order = unrolled(program, program.accesses());
    const Edges before = predecessors(order.accesses);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = before.tasks(); i-- > 0;)
            for (const Edge* e = before.begin(i); needed[order.tasks[i]] && e != before.end(i);
                 ++e) {
                char& other = needed[order.tasks[e->task]];
                if (e->kind != Dependency::value || other) continue;
                other = 1;
                changed = !program.loops.empty();  // it may be later in the body
            }
    }
    program.keep_tasks(needed);
}

}  // namespace nn
