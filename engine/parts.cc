// Programs that take a batch in parts, one after the other (gradient accumulation). By the longest
// path alone, workers would run every part's forward pass before the first backward pass, and all
// parts would be in memory at once.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "engine/plan.h"
#include "engine/program.h"
#include "engine/runtime.h"

namespace nn {

// How many parts are under way at most: as many as it takes to give every worker something to do.
static size_t parts_at_once(int tiles) { return size_t((planned_workers() - 1) / tiles) + 1; }

// The tasks of one part that wait for none of its others, and the one that ends its longest path.
struct PartEnds {
    std::vector<size_t> first;
    size_t last = 0;
};

static PartEnds ends_of(const std::vector<Task>& tasks, size_t begin, size_t end) {
    PartEnds out;
    std::unordered_map<const Tile*, double> written;  // to where the path to its value goes
    double longest = -1;
    for (size_t t = begin; t < end; ++t) {
        const Task& task = tasks[t];
        double path = 0;
        bool waits = false;
        for (int i = 0; i < task.handles; ++i)
            if (const auto at = written.find(task.tiles[i].get()); at != written.end())
                waits = true, path = std::max(path, at->second);
        if (!waits) out.first.push_back(t);
        path += guessed_time(task.arg);
        for (int i = 0; i < task.handles; ++i)
            if (task.modes[i] != Mode::read) written[task.tiles[i].get()] = path;
        if (path > longest) longest = path, out.last = t;
    }
    return out;
}

// A part begins when the one so many before it has ended: the former's first tasks read a tile that
// the latter's last one writes.
void Program::order_parts() {
    std::vector<TilePtr> gates(parts_.size());
    int tiles = 1;  // where a batch is cut across its parts, some have more
    for (const Part& part : parts_) tiles = std::max(tiles, part.tiles);
    const size_t ahead = parts_at_once(tiles);
    for (size_t p = 0; p < parts_.size(); ++p) {
        const size_t end = p + 1 < parts_.size() ? parts_[p + 1].begin : tasks_.size();
        const PartEnds ends = ends_of(tasks_, parts_[p].begin, end);
        const auto add = [&](size_t t, const TilePtr& gate, Mode mode) {
            Task& task = tasks_[t];
            if (task.handles == max_operands) return;
            task.tiles[task.handles] = gate;
            task.modes[task.handles++] = mode;
        };
        if (p >= ahead && gates[p - ahead])
            for (size_t t : ends.first) add(t, gates[p - ahead], Mode::read);
        if (p + 1 == parts_.size() || ends.first.empty()) continue;
        if (tasks_[ends.last].handles == max_operands) continue;
        gates[p] = std::make_shared<Tile>(64);
        add(ends.last, gates[p], Mode::write);
    }
}

// `path`: of each task, to the end of the program. Where there are parts, every task of one comes
// before all of the next.
void Program::set_priorities(const std::vector<double>& path) {
    double band = 0, scale = 1;
    if (!parts_.empty() && !path.empty()) {
        band = *std::max_element(path.begin(), path.end());
        scale = std::min(1.0, 2e9 / (band * double(parts_.size() + 1)));
    }
    size_t part = 0;
    for (size_t t = 0; t < tasks_.size(); ++t) {
        while (part < parts_.size() && parts_[part].begin <= t) ++part;
        const double later = double(parts_.size() - part) * band;
        const double priority = (path[t] + later) * scale + 1e8 * tasks_[t].priority;
        tasks_[t].priority = int32_t(std::clamp(priority, -2e9, 2e9));
    }
}

}  // namespace nn
