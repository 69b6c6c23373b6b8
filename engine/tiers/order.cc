#include "engine/tiers/order.h"

#include <algorithm>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

namespace nn {
namespace {

// Where a task should run: before, in or after the loop, after which part of its microbatch, for
// which microbatch, and its number in the recording.
struct Key {
    uint32_t section, part, microbatch, number;
    bool operator<(const Key& o) const {
        return std::tie(section, part, microbatch, number) <
               std::tie(o.section, o.part, o.microbatch, o.number);
    }
};
enum { before_loop, in_loop, after_loop };

uint32_t section_of(const Program& program, size_t task) {
    if (program.loops.empty() || task < program.loops[0].begin) return before_loop;
    return task < program.loops[0].end ? in_loop : after_loop;
}

// A part of a microbatch is a sequence of tasks of the same layer.
std::vector<Key> keys_by_layer(const Program& program) {
    std::vector<Key> keys;
    const auto& microbatches = program.microbatches;
    uint32_t part = 0, microbatch = 0;
    const char* layer = "";
    for (uint32_t t = 0; t < program.tasks.size(); ++t) {
        if (microbatch < microbatches.size() && microbatches[microbatch].begin == t)
            ++microbatch, part = 1, layer = "";
        if (std::string(layer) != program.tasks[t].arg.layer)
            ++part, layer = program.tasks[t].arg.layer;
        keys.push_back({section_of(program, t), part, microbatch, t});
    }
    return keys;
}

std::vector<Key> keys_as_recorded(const Program& program) {
    std::vector<Key> keys;
    for (uint32_t t = 0; t < program.tasks.size(); ++t)
        keys.push_back({section_of(program, t), 0, 0, t});
    return keys;
}

// The tasks that update persistent tiles, but no outputs, and on which only such tasks depend. They
// read no inputs, which the next run replaces before its first task.
std::vector<char> find_updates(const Program& program, const Edges& after) {
    std::unordered_set<const Tile*> inputs, outputs;
    for (const TilePtr& tile : tiles_of(program.inputs)) inputs.insert(tile.get());
    for (const TilePtr& tile : tiles_of(program.outputs)) outputs.insert(tile.get());
    std::vector<char> is_update(program.tasks.size(), 0);
    for (size_t t = program.tasks.size(); t-- > 0;) {
        const Task& task = program.tasks[t];
        bool fits = true, writes = false;
        for (int i = 0; i < task.handles; ++i) {
            const Tile* const tile = task.tiles[i].get();
            fits = fits && !inputs.count(tile);
            if (!task.writes(i)) continue;
            writes = true;
            fits = fits && tile->persists() && !outputs.count(tile);
        }
        for (const Edge* e = after.begin(uint32_t(t)); e != after.end(uint32_t(t)); ++e)
            fits = fits && is_update[e->task];
        is_update[t] = fits && writes;
    }
    return is_update;
}

// Whether the results of a task are much smaller than what it reads, as for a sum.
bool reduces(const Task& task) {
    size_t read = 0, written = 0;
    for (int i = 0; i < task.handles; ++i)
        (task.writes(i) ? written : read) += task.tiles[i]->bytes;
    return written * 8 <= read;
}

// A task runs with the first task that needs its results: the inputs of a microbatch are recorded
// before it begins.
void join_first_successor(std::vector<Key>& keys, const Edges& after) {
    for (auto task = uint32_t(keys.size()); task-- > 0;)
        for (const Edge* e = after.begin(task); e != after.end(task); ++e) {
            const Key& next = keys[e->task];
            if (next.section != keys[task].section) continue;
            keys[task] = std::min(keys[task], {next.section, next.part, next.microbatch, task});
        }
}

// A topological order by the keys. Updates and reductions follow their last predecessor.
std::vector<uint32_t> sorted(const Program& program, const Edges& before, const Edges& after,
                             std::vector<Key> keys, const std::vector<char>& is_update) {
    std::vector<uint32_t> missing, out;
    join_first_successor(keys, after);
    for (uint32_t t = 0; t < before.tasks(); ++t) {
        missing.push_back(before.first[t + 1] - before.first[t]);
        if (missing[t] == 0 || (!is_update[t] && !reduces(program.tasks[t]))) continue;
        Key last{};
        for (const Edge* e = before.begin(t); e != before.end(t); ++e)
            last = std::max(last, keys[e->task]);
        if (last.section == keys[t].section) keys[t] = last;
    }
    const auto later = [&](uint32_t a, uint32_t b) {
        return keys[a] < keys[b] ? false : keys[b] < keys[a] ? true : a > b;
    };
    std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(later)> ready(later);
    for (uint32_t t = 0; t < before.tasks(); ++t)
        if (missing[t] == 0) ready.push(t);
    while (!ready.empty()) {
        const uint32_t task = ready.top();
        ready.pop();
        out.push_back(task);
        for (const Edge* e = after.begin(task); e != after.end(task); ++e)
            if (--missing[e->task] == 0) ready.push(e->task);
    }
    return out;
}

}  // namespace

// Where the last tasks of a run begin, of which nearly all are updates. Few are not, such as those
// for the mean loss.
static std::vector<uint32_t>::iterator begin_of_last_updates(std::vector<uint32_t>& tasks,
                                                             const std::vector<char>& is_update) {
    size_t begin = tasks.size(), others = 0;
    for (; begin > 0; --begin) {
        others += !is_update[tasks[begin - 1]];
        if (others > 8 + tasks.size() / 100) break;
    }
    return tasks.begin() + std::ptrdiff_t(begin);
}

Accesses accesses_without_gates(const Program& program) {
    Accesses out;
    for (size_t t = 0; t < program.tasks.size(); ++t) {
        const Task& task = program.tasks[t];
        const bool is_ordered = task.iteration < 0;
        for (int i = 0; is_ordered && i < task.handles - task.gates; ++i)
            out.add(out.number_of(task.tiles[i].get()), task.modes[i]);
        out.end_task();
    }
    return out;
}

// Moves the last updates, with a share of the bytes of all, from the end of a run to the deferred
// tasks.
static void defer_last(std::vector<uint32_t>& run, std::vector<uint32_t>& deferred_tasks,
                       const Program& program, const std::vector<char>& is_update, double share) {
    const auto bytes_of = [&](uint32_t number) {
        const Task& task = program.tasks[number];
        double out = 0;
        for (int i = 0; i < task.handles; ++i) out += double(task.tiles[i]->bytes);
        return out;
    };
    double left = 0;
    for (uint32_t task : run)
        if (is_update[task]) left += share * bytes_of(task);
    auto begin = run.end();
    while (begin != run.begin() && left > 0)
        if (--begin; is_update[*begin]) left -= bytes_of(*begin);
    const auto stays = [&](uint32_t task) { return !is_update[task]; };
    const auto deferred = std::stable_partition(begin, run.end(), stays);
    deferred_tasks.assign(deferred, run.end());
    run.erase(deferred, run.end());
}

static TaskOrder order_of_all_ranks(const Program& program) {
    TaskOrder out;
    for (uint32_t t = 0; t < program.tasks.size(); ++t) out.body.push_back(t);
    return out;
}

TaskOrder order_tasks(const Program& program, const Accesses& accesses, const OrderChoice& choice) {
    if (program.order_is_fixed) return order_of_all_ranks(program);
    const Edges before = predecessors(accesses), after = successors(before);
    const std::vector<char> is_update = find_updates(program, after);
    auto keys = choice.by_layer ? keys_by_layer(program) : keys_as_recorded(program);
    TaskOrder out;
    std::vector<uint32_t>* const sections[] = {&out.body, &out.iteration, &out.tail};
    for (uint32_t task : sorted(program, before, after, std::move(keys), is_update))
        if (program.tasks[task].iteration < 0) sections[section_of(program, task)]->push_back(task);
    std::vector<uint32_t>& end = program.loops.empty() ? out.body : out.tail;
    const auto last = begin_of_last_updates(end, is_update);
    const auto in_last = std::count_if(last, end.end(), [&](uint32_t t) { return is_update[t]; });
    const auto updates = std::count(is_update.begin(), is_update.end(), 1);
    // A few of many updates are not worth their gradients' memory between two runs.
    const bool need_all_gradients = in_last * 2 >= updates;
    defer_last(end, out.deferred, program, is_update, need_all_gradients ? 1 : choice.late_updates);
    return out;
}

std::vector<uint32_t> merge_deferred(const TaskOrder& order, const Accesses& accesses) {
    // Positions in the body: of the first access to a tile, and of the first write.
    const auto size = uint32_t(order.body.size());
    std::vector<uint32_t> first_use(accesses.tiles, size), first_write(accesses.tiles, size);
    const auto limit = [](uint32_t& position, uint32_t to) { position = std::min(position, to); };
    for (uint32_t i = 0; i < size; ++i)
        for (const auto* a = accesses.begin(order.body[i]); a != accesses.end(order.body[i]); ++a) {
            limit(first_use[a->tile], i);
            if (a->mode != Mode::read) limit(first_write[a->tile], i);
        }
    std::vector<std::pair<uint32_t, uint32_t>> at;  // (position in the body, task)
    for (size_t i = order.deferred.size(); i-- > 0;) {
        const uint32_t task = order.deferred[i];
        uint32_t position = size;
        const auto begin = accesses.begin(task), end = accesses.end(task);
        for (const auto* a = begin; a != end; ++a)
            limit(position, a->mode == Mode::read ? first_write[a->tile] : first_use[a->tile]);
        for (const auto* a = begin; a != end; ++a) {  // earlier deferred tasks are not later
            limit(first_use[a->tile], position);
            if (a->mode != Mode::read) limit(first_write[a->tile], position);
        }
        at.push_back({position, task});
    }
    std::reverse(at.begin(), at.end());
    std::stable_sort(at.begin(), at.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<uint32_t> out;
    auto next = at.begin();
    for (uint32_t i = 0; i <= size; ++i) {
        for (; next != at.end() && next->first == i; ++next) out.push_back(next->second);
        if (i < size) out.push_back(order.body[i]);
    }
    return out;
}

}  // namespace nn
