// The simulation behind --plan: see plan.h. What it copies from StarPU 1.4's `prio`: one queue,
// sorted by priority and then by the time of becoming ready (prio_deque.c); memory of a written
// tile is allocated when its task starts and given back when the last task that uses it is done.
#include "engine/plan.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "engine/memory.h"
#include "engine/program.h"
#include "engine/runtime.h"

namespace nn {
namespace {

// Successors of every task of `steps` replays, as StarPU derives them from the order of submission
// and the accesses. Ids count on over the replays.
struct Dependencies {
    std::vector<uint32_t> first, next;  // successors of i: next[first[i]] to next[first[i + 1] - 1]
    std::vector<uint32_t> missing;      // predecessors of each

    Dependencies(const PlanGraph& g, uint32_t steps) {
        const uint32_t count = uint32_t(g.nodes.size()), all = count * steps;
        std::vector<std::pair<uint32_t, uint32_t>> edges;
        std::vector<int64_t> writer(g.blocks.size(), -1);
        std::vector<std::vector<uint32_t>> readers(g.blocks.size());
        missing.assign(all, 0);
        const auto edge = [&](uint32_t from, uint32_t to) {
            edges.push_back({from, to});
            ++missing[to];
        };
        for (uint32_t id = 0; id < all; ++id) {
            const PlanGraph::Node& node = g.nodes[id % count];
            for (uint32_t u = node.begin; u < node.end; ++u) {
                const uint32_t tile = g.uses[u].tile;
                std::vector<uint32_t>& reading = readers[tile];
                if (g.uses[u].mode == Mode::read) {
                    if (writer[tile] >= 0) edge(uint32_t(writer[tile]), id);
                    reading.push_back(id);
                    continue;
                }
                for (uint32_t reader : reading) edge(reader, id);
                if (reading.empty() && writer[tile] >= 0) edge(uint32_t(writer[tile]), id);
                reading.clear();
                writer[tile] = id;
            }
        }
        first.assign(all + 1, 0);
        for (const auto& e : edges) ++first[e.first + 1];
        for (uint32_t i = 0; i < all; ++i) first[i + 1] += first[i];
        next.resize(edges.size());
        std::vector<uint32_t> at(first.begin(), first.end() - 1);
        for (const auto& e : edges) next[at[e.first]++] = e.second;
    }
};

// What is allocated, and the moment when that was most.
class Ledger {
public:
    explicit Ledger(const PlanGraph& g) : g_(g), uses_(g.blocks.size(), 0), left_(uses_) {
        for (const PlanGraph::Block& block : g.blocks)
            if (block.persists) add(block, 1);
        for (const PlanGraph::Use& use : g.uses) ++uses_[use.tile];
        result.lasting = now_;
    }
    void task_starts(const PlanGraph::Node& node) {
        for (uint32_t u = node.begin; u < node.end; ++u) {
            const uint32_t tile = g_.uses[u].tile;
            if (g_.blocks[tile].persists || left_[tile] > 0) continue;
            left_[tile] = uses_[tile];
            add(g_.blocks[tile], 1);
        }
        if (now_ <= result.peak) return;
        result.peak = now_;
        std::copy(by_kind_, by_kind_ + tile_kinds, result.by_kind);
    }
    void task_ends(const PlanGraph::Node& node) {
        for (uint32_t u = node.begin; u < node.end; ++u) {
            const uint32_t tile = g_.uses[u].tile;
            if (!g_.blocks[tile].persists && --left_[tile] == 0) add(g_.blocks[tile], -1);
        }
    }
    PlanResult result;

private:
    void add(const PlanGraph::Block& block, int sign) {
        now_ += sign * block.bytes;
        by_kind_[block.kind] += sign * block.bytes;
    }
    const PlanGraph& g_;
    std::vector<uint32_t> uses_, left_;  // of each block in a step; not done yet, 0: not allocated
    int64_t now_ = 0, by_kind_[tile_kinds] = {};
};

struct Ready {
    int32_t priority;
    uint32_t since, id;  // since: counts the tasks that became ready
    bool operator<(const Ready& o) const {
        return priority != o.priority ? priority < o.priority : since > o.since;
    }
};
struct Running {
    double end;
    uint32_t id;
    bool operator<(const Running& o) const { return end != o.end ? end > o.end : id > o.id; }
};

}  // namespace

PlanResult simulate(const PlanGraph& g, int workers, int steps, double submission) {
    const uint32_t count = uint32_t(g.nodes.size()), all = count * uint32_t(steps);
    Dependencies dependencies(g, uint32_t(steps));
    Ledger ledger(g);
    std::priority_queue<Ready> ready;
    std::priority_queue<Running> running;
    std::vector<uint32_t> left(size_t(steps), count);
    uint32_t submitted = 0, since = 0;
    double now = 0, next_submission = 0;
    const auto becomes_ready = [&](uint32_t id) {
        ready.push({g.nodes[id % count].priority, since++, id});
    };
    // A replay is submitted when the one before the last is done.
    const auto may_submit = [&] {
        return submitted < all && (submitted / count < 2 || left[submitted / count - 2] == 0);
    };
    const auto start_on = [&](int busy_workers) {
        while (!ready.empty() && int(running.size()) < busy_workers) {
            const uint32_t id = ready.top().id;
            ready.pop();
            ledger.task_starts(g.nodes[id % count]);
            running.push({now + g.nodes[id % count].seconds, id});
        }
    };
    for (uint32_t id = 0; id < all; ++id) ++dependencies.missing[id];  // the submission of it
    while (submitted < all || !running.empty()) {
        if (may_submit() && (running.empty() || next_submission <= running.top().end)) {
            now = std::max(now, next_submission);
            next_submission = now + submission;
            if (--dependencies.missing[submitted] == 0) becomes_ready(submitted);
            ++submitted;
            if (may_submit() && next_submission <= now) continue;  // all that comes at once
        } else {
            const uint32_t id = running.top().id;
            now = running.top().end;
            running.pop();
            for (uint32_t e = dependencies.first[id]; e < dependencies.first[id + 1]; ++e)
                if (--dependencies.missing[dependencies.next[e]] == 0)
                    becomes_ready(dependencies.next[e]);
            // Workers that idle are quicker than the one that ends the task and gives memory back.
            start_on(workers - 1);
            ledger.task_ends(g.nodes[id % count]);
            if (--left[id / count] == 0) next_submission = std::max(next_submission, now);
            if (may_submit() && next_submission <= now) continue;
        }
        start_on(workers);
    }
    PlanResult out = ledger.result;
    out.peak = std::max(out.peak, out.lasting);
    out.seconds = now / steps;
    for (const PlanGraph::Node& node : g.nodes) out.busy += node.seconds;
    return out;
}

PlanGraph plan_graph(const Program& program, const TaskTimes& times) {
    PlanGraph g;
    std::unordered_map<const Tile*, uint32_t> numbers;
    const std::vector<Task>& tasks = program.tasks();
    const auto number_of = [&](const Tile& tile, bool persists) {
        const auto [at, fresh] = numbers.insert({&tile, uint32_t(g.blocks.size())});
        if (fresh)
            g.blocks.push_back({int64_t(arena_bytes(tile.bytes)), TileKind(tile.kind), persists});
        return at->second;
    };
    const auto persist = [&](const std::vector<Tensor>& tensors) {
        for (const Tensor& t : tensors)
            for (int64_t i = 0; i < t.tiles(); ++i) number_of(*t.tile(i), true);
    };
    const int team = planned_workers();
    persist(program.inputs());
    persist(program.results());
    std::unordered_map<const Tile*, bool> set_up;  // given a value before the step begins
    for (size_t t = 0; t < program.step_begin(); ++t)
        for (int i = 0; i < tasks[t].handles; ++i) set_up[tasks[t].tiles[i].get()] = true;
    for (size_t t = program.step_begin(); t < tasks.size(); ++t) {
        const Task& task = tasks[t];
        const uint32_t begin = uint32_t(g.uses.size());
        for (int i = 0; i < task.handles; ++i) {
            const Tile& tile = *task.tiles[i];
            const bool persists = !tile.recording || set_up.count(&tile);
            g.uses.push_back({number_of(tile, persists), task.modes[i]});
        }
        const double seconds = times.seconds(task) / (task.arg.helped && task.splits ? team : 1);
        g.nodes.push_back({seconds, task.priority, begin, uint32_t(g.uses.size())});
    }
    return g;
}

namespace {

// A number from 0 to 1 that belongs to two others (the finaliser of MurmurHash3).
double drawn(uint64_t seed, uint64_t i) {
    uint64_t x = seed * 0x9E3779B97F4A7C15u + i + 1;
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
    return double((x ^ (x >> 33)) >> 11) * 0x1p-53;
}

}  // namespace

// The course that tasks take varies with their times from step to step, and memory with it. A run's
// peak is that of its worst step: so a few courses are played, one of them with a worker less, as
// where another program has its core for a while.
PlanResult plan(const Program& program, Times kind, int steps) {
    constexpr double submission = 3e-6;             // seconds a task
    constexpr double stalled = 0.02, stall = 5e-3;  // tasks that lose their core, and for how long
    constexpr size_t many = 100000;
    TaskTimes guesses;
    TaskTimes& times = kind == Times::guessed ? guesses : task_times();
    if (kind == Times::measured) {
        std::vector<const Task*> tasks;
        for (size_t t = program.step_begin(); t < program.tasks().size(); ++t)
            tasks.push_back(&program.tasks()[t]);
        times.measure(tasks, planned_workers());
    }
    const PlanGraph graph = plan_graph(program, times);
    // Where workers help each other, one of them takes all tasks.
    const int workers = program.helped() ? 1 : planned_workers();
    PlanResult out = simulate(graph, workers, steps, submission);
    if (program.helped()) out.busy *= planned_workers();
    const auto play = [&](const PlanGraph& course, int present) {
        const PlanResult other = simulate(course, present, steps, submission);
        if (other.peak <= out.peak) return;
        out.peak = other.peak;
        std::copy(other.by_kind, other.by_kind + tile_kinds, out.by_kind);
    };
    if (graph.nodes.size() >= many) return out;
    if (workers > 1) play(graph, workers - 1);
    for (uint64_t course = 1; course <= 6; ++course) {
        PlanGraph varied = graph;
        for (size_t i = 0; i < varied.nodes.size(); ++i) {
            varied.nodes[i].seconds *= 0.9 + 0.4 * drawn(course, i);
            if (course % 2 == 0 && drawn(course + 100, i) < stalled)
                varied.nodes[i].seconds += stall;
        }
        play(varied, workers);
    }
    return out;
}

}  // namespace nn
