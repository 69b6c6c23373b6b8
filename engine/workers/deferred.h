// Planned tasks that wait for the next run of their program (tiers/order.h). They must run before
// anything else uses the persistent tiles that they change. Main thread only.
#pragma once
#include <vector>

#include "engine/tile/tile.h"

namespace nn {

class DeferredTasks {
public:
    virtual ~DeferredTasks() = default;
    virtual void run_deferred() = 0;
};
void defer(DeferredTasks* tasks, const std::vector<const Tile*>& used);
bool are_deferred(const DeferredTasks* tasks);
void finish_deferred(const DeferredTasks* except = nullptr);
void finish_deferred_on(const Tile& tile);  // if they use it

}  // namespace nn
