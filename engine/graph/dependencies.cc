#include "engine/graph/dependencies.h"

#include <algorithm>

#include "engine/graph/task.h"

namespace nn {

uint32_t Accesses::number_of(const Tile* tile) {
    const auto [at, fresh] = numbers.insert({tile, tiles});
    if (fresh) ++tiles;
    return at->second;
}

Accesses accesses_of(const std::vector<Task>& tasks, size_t begin) {
    Accesses out;
    for (size_t t = begin; t < tasks.size(); ++t) {
        for (int i = 0; i < tasks[t].handles; ++i)
            out.add(out.number_of(tasks[t].tiles[i].get()), tasks[t].modes[i]);
        out.end_task();
    }
    return out;
}

namespace {

// The state of a tile between two tasks.
struct TileState {
    int64_t writer = -1;            // the last task that wrote it
    std::vector<uint32_t> readers;  // since the last write
};

}  // namespace

Edges predecessors(const Accesses& accesses, uint32_t replays) {
    Edges out;
    out.first.push_back(0);
    std::vector<TileState> states(accesses.tiles);
    for (uint32_t id = 0; id < accesses.tasks() * replays; ++id) {
        const uint32_t task = id % accesses.tasks();
        for (const auto* a = accesses.begin(task); a != accesses.end(task); ++a) {
            TileState& state = states[a->tile];
            const auto kind = a->mode == Mode::write ? Dependency::order : Dependency::value;
            if (state.writer >= 0) out.edges.push_back({uint32_t(state.writer), kind});
            if (a->mode == Mode::read) {
                state.readers.push_back(id);
                continue;
            }
            for (uint32_t reader : state.readers) out.edges.push_back({reader, Dependency::order});
            state.readers.clear();
            state.writer = id;
        }
        out.first.push_back(uint32_t(out.edges.size()));
    }
    return out;
}

Edges successors(const Edges& before) {
    Edges out;
    out.first.assign(before.first.size() + 1, 0);
    for (const Edge& edge : before.edges) ++out.first[edge.task + 2];
    for (size_t i = 2; i < out.first.size(); ++i) out.first[i] += out.first[i - 1];
    out.edges.resize(before.edges.size());
    for (uint32_t task = 0; task < before.tasks(); ++task)
        for (const Edge* e = before.begin(task); e != before.end(task); ++e)
            out.edges[out.first[e->task + 1]++] = {task, e->kind};
    out.first.pop_back();
    return out;
}

std::vector<double> paths_to_end(const Edges& before, const std::vector<double>& lengths) {
    std::vector<double> path(before.tasks(), 0);
    for (uint32_t task = before.tasks(); task-- > 0;) {
        path[task] += lengths[task];
        for (const Edge* e = before.begin(task); e != before.end(task); ++e)
            path[e->task] = std::max(path[e->task], path[task]);
    }
    return path;
}

}  // namespace nn
