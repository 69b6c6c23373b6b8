// Waits for tasks. A signal ends a wait unless interrupts are deferred; a hung task makes it fail
// (workers/watchdog.h). Main thread only.
#pragma once
#include <cstdint>
#include <functional>

#include "engine/workers/handles.h"

namespace nn {

int64_t unfinished_tasks();
void wait_done();  // until every submitted task is done; errors stay pending
void wait_all();   // the same, and throws pending errors
void wait_for(const std::function<bool()>& done);
// Until all earlier tasks are done with the tile. A semaphore wakes the thread at once: polling
// would slow down text generation. A signal just before it sleeps is detected after 20 ms.
HeldTile wait_and_hold(StarpuHandle handle, bool write);
void wait_for_tasks();  // until every submitted task is done; signals do not end it

// Throws the error of a failed task, once, or Interrupted. Calls of the C API that use tensors
// begin with it.
void check_pending();

void idle();          // waits, then lets the workers sleep until the next submission
void ensure_awake();  // before a submission

}  // namespace nn
