// The dependencies between tasks, derived as StarPU does (sequential consistency: a reader waits
// for the last writer, a writer for the last writer and all readers since). Passes, simulation and
// profiles use this derivation.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/kernel.h"

namespace nn {

struct Task;
class Tile;

// The tiles that tasks access, in the order of submission. Tiles are numbered from 0.
struct Accesses {
    struct Access {
        uint32_t tile;
        Mode mode;
    };
    std::vector<uint32_t> first{0};  // task t has list[first[t]] to list[first[t + 1] - 1]
    std::vector<Access> list;
    uint32_t tiles = 0;
    std::unordered_map<const Tile*, uint32_t> numbers;  // only if derived from tasks

    uint32_t tasks() const { return uint32_t(first.size()) - 1; }
    const Access* begin(uint32_t task) const { return list.data() + first[task]; }
    const Access* end(uint32_t task) const { return list.data() + first[task + 1]; }
    void add(uint32_t tile, Mode mode) { list.push_back({tile, mode}); }  // of the last task
    void end_task() { first.push_back(uint32_t(list.size())); }
    uint32_t number_of(const Tile* tile);  // a new number for a new tile
};
Accesses accesses_of(const std::vector<Task>& tasks, size_t begin = 0);

// A task depends on an earlier one if it reads its result, or overwrites a tile that it accessed.
enum class Dependency : uint8_t { value, order };
struct Edge {
    uint32_t task;
    Dependency kind;
};

// Task t has edges[first[t]] to edges[first[t + 1] - 1].
struct Edges {
    std::vector<uint32_t> first;
    std::vector<Edge> edges;
    uint32_t tasks() const { return uint32_t(first.size()) - 1; }
    const Edge* begin(uint32_t task) const { return edges.data() + first[task]; }
    const Edge* end(uint32_t task) const { return edges.data() + first[task + 1]; }
};

// The tasks on which each task depends; one may be listed several times. replays: how often the
// tasks are submitted; task numbers continue from replay to replay.
Edges predecessors(const Accesses& accesses, uint32_t replays = 1);
Edges successors(const Edges& predecessors);

// The length of the longest path from each task to the end, including the task.
std::vector<double> paths_to_end(const Edges& predecessors, const std::vector<double>& lengths);

}  // namespace nn
