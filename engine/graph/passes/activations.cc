#include "engine/graph/passes/activations.h"

#include <algorithm>

#include "engine/graph/layer.h"
#include "engine/graph/scalars.h"

namespace nn {
namespace {

bool is_product(const Task& task) { return task.arg.kernel->bound == Bound::products; }

}  // namespace

Activations::Activations(Program& program) : accesses_(program.accesses()) {
    if (program.backwards.empty()) return;
    find_tiles(program);
    find_segments(program);
    find_uses();
    find_repeatable(program);
}

void Activations::find_tiles(const Program& program) {
    is_temporary_.assign(accesses_.tiles, 1);
    tiles_.resize(accesses_.tiles);
    const auto persists = [&](const TilePtr& tile) {
        const auto at = accesses_.numbers.find(tile.get());
        if (at != accesses_.numbers.end()) is_temporary_[at->second] = 0;
    };
    for (const TilePtr& tile : tiles_of(program.inputs)) persists(tile);
    for (const TilePtr& tile : tiles_of(program.outputs)) persists(tile);
    for (uint32_t t = 0; t < program.tasks.size(); ++t)
        for (int i = 0; i < program.tasks[t].handles; ++i) {
            const auto& access = accesses_.begin(t)[i];
            const bool writes = access.mode != Mode::read;
            (writes ? tiles_[access.tile].writers : tiles_[access.tile].readers).push_back(t);
            if (program.tasks[t].tiles[i]->persists()) is_temporary_[access.tile] = 0;
        }
}

void Activations::find_segments(const Program& program) {
    segment_.assign(program.tasks.size(), none);
    uint32_t begin = 0;
    for (const auto& backward : program.backwards) {
        if (backward.begin < begin) continue;
        const Part part{begin, uint32_t(backward.begin), uint32_t(backward.end)};
        const char* layer = nullptr;
        for (uint32_t t = part.begin; t < part.backward; ++t) {
            const char* const now = program.tasks[t].arg.layer;
            if (t == part.begin || now != layer) {
                std::string block = block_of(now);
                if (t == part.begin || block != blocks_.back()) {
                    blocks_.push_back(std::move(block));
                    part_.push_back(uint32_t(parts_.size()));
                }
                layer = now;
            }
            segment_[t] = uint32_t(blocks_.size()) - 1;
        }
        parts_.push_back(part);
        begin = part.end;
    }
}

void Activations::find_uses() {
    for (uint32_t tile = 0; tile < tiles_.size(); ++tile) {
        TileUse& use = tiles_[tile];
        if (!is_temporary_[tile] || use.writers.empty()) continue;
        use.segment = segment_[use.writers.front()];
        for (uint32_t writer : use.writers)
            if (segment_[writer] != use.segment) use.segment = none;
        if (use.segment == none) continue;
        const Part& part = parts_[part_[use.segment]];
        for (uint32_t reader : use.readers) {
            if (segment_[reader] != none) use.enters |= segment_[reader] != use.segment;
            if (use.backward_reader == none && reader >= part.backward && reader < part.end)
                use.backward_reader = reader;
        }
    }
}

bool Activations::is_written_between(uint32_t tile, uint32_t after, uint32_t before) const {
    const auto& writers = tiles_[tile].writers;
    const auto next = std::upper_bound(writers.begin(), writers.end(), after);
    return next != writers.end() && *next < before;
}

// Whether the task can run again in the backward pass that follows, with the same results: it
// changes temporaries only, and what it reads is still the same.
bool Activations::can_run_again(const Program& program, uint32_t task,
                                const std::vector<char>& repeats) {
    const uint32_t segment = segment_[task];
    if (segment == none || program.tasks[task].iteration >= 0) return false;
    const bool is_last = segment + 1 == part_.size() || part_[segment + 1] != part_[segment];
    if (is_last) return false;  // the backward pass needs the values of the last layer at once
    const Part& part = parts_[part_[segment]];
    for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a) {
        if (a->mode == Mode::read) {
            if (is_written_between(a->tile, task, part.end)) return false;
            continue;
        }
        if (!is_temporary_[a->tile] || tiles_[a->tile].segment != segment) return false;
        const auto& writers = tiles_[a->tile].writers;
        const auto at = std::lower_bound(writers.begin(), writers.end(), task);
        const bool is_first = at == writers.begin();
        // The first task writes the tile, all others change it.
        if (is_first != (a->mode == Mode::write)) return false;
        if (!is_first && !repeats[*(at - 1)]) return false;
    }
    for (const Patch& patch : program.tasks[task].patches)
        for (const auto& step : program.scalar_steps)
            if (patch.kind == Patch::scalar && step.before_task > task &&
                step.before_task < part.end && depends_on(patch.scalar_id, step.scalar))
                return false;
    return true;
}

// Whether the task needs no product, given the activations that products wrote.
bool Activations::is_cheap(const Program& program, uint32_t task,
                           const std::vector<char>& cheap) const {
    if (is_product(program.tasks[task])) return false;
    for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a) {
        const TileUse& use = tiles_[a->tile];
        if (a->mode == Mode::write || !is_temporary_[a->tile]) continue;
        if (use.segment == none || part_[use.segment] != part_[segment_[task]]) continue;
        const uint32_t writer = *(std::upper_bound(use.writers.begin(), use.writers.end(), task) -
                                  (a->mode == Mode::read ? 1 : 2));
        const bool is_kept = use.is_activation() && is_product(program.tasks[writer]);
        if (!cheap[writer] && !is_kept) return false;
    }
    return true;
}

void Activations::find_repeatable(const Program& program) {
    std::vector<char> repeats(program.tasks.size(), 0), cheap(repeats);
    for (uint32_t t = 0; t < program.tasks.size(); ++t) {
        repeats[t] = can_run_again(program, t, repeats);
        cheap[t] = repeats[t] && is_cheap(program, t, cheap);
    }
    for (TileUse& use : tiles_) {
        if (use.segment == none) continue;
        use.can_run_again = use.cheap = true;
        for (uint32_t writer : use.writers) {
            use.can_run_again &= repeats[writer] != 0;
            use.cheap &= cheap[writer] != 0;
        }
    }
}

// What enters a layer is kept, so that a layer needs no other one, unless it is cheap.
bool Activations::is_candidate(uint32_t tile) const {
    const TileUse& use = tiles_[tile];
    return use.can_run_again && use.is_activation() && (use.cheap || !use.enters);
}

bool Activations::is_new(uint32_t task, uint32_t tile, const std::vector<char>& chosen) const {
    const TileUse& use = tiles_[tile];
    if (!use.can_run_again || part_[use.segment] != part_[segment_[task]]) return false;
    if (use.is_activation()) return chosen[tile] != 0;
    return use.cheap || !use.enters;
}

void Activations::add_needed(uint32_t tile, const std::vector<char>& chosen,
                             std::vector<char>& seen, Needed& needed) const {
    struct Value {
        uint32_t tile, last_writer;
    };
    std::vector<Value> stack{{tile, tiles_[tile].writers.back()}};
    const auto add_task = [&](uint32_t task) {
        if (seen[task]) return;
        seen[task] = 1;
        needed.tasks.push_back(task);
        for (const auto* a = accesses_.begin(task); a != accesses_.end(task); ++a) {
            const TileUse& use = tiles_[a->tile];
            if (a->mode == Mode::write) continue;
            if (a->mode == Mode::read_write)
                stack.push_back({a->tile, task});
            else if (is_new(task, a->tile, chosen))
                stack.push_back({a->tile, use.writers.back()});
            else if (is_temporary_[a->tile] && !use.is_activation())
                needed.kept.push_back(a->tile);
        }
    };
    const auto mode_of = [&](uint32_t task, uint32_t number) {
        const auto* a = accesses_.begin(task);
        while (a->tile != number) ++a;
        return a->mode;
    };
    while (!stack.empty()) {
        const Value value = stack.back();
        stack.pop_back();
        const auto& writers = tiles_[value.tile].writers;
        auto at = std::upper_bound(writers.begin(), writers.end(), value.last_writer);
        do add_task(*--at);
        while (mode_of(*at, value.tile) != Mode::write);
    }
}

}  // namespace nn
