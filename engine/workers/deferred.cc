#include "engine/workers/deferred.h"

#include <unordered_set>
#include <utility>

namespace nn {
namespace {

DeferredTasks* waiting = nullptr;
// Never destroyed: programs may be freed while the process ends.
std::unordered_set<const Tile*>& used_tiles() {
    static auto* const tiles = new std::unordered_set<const Tile*>;
    return *tiles;
}

}  // namespace

void defer(DeferredTasks* tasks, const std::vector<const Tile*>& used) {
    waiting = tasks;
    used_tiles() = {used.begin(), used.end()};
}

bool are_deferred(const DeferredTasks* tasks) { return waiting == tasks; }

void finish_deferred(const DeferredTasks* except) {
    if (!waiting || waiting == except) return;
    used_tiles().clear();
    std::exchange(waiting, nullptr)->run_deferred();
}

void finish_deferred_on(const Tile& tile) {
    if (waiting && used_tiles().count(&tile)) finish_deferred();
}

}  // namespace nn
