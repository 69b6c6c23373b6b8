// Waiting for tasks. Signals end every wait unless interrupts are deferred, and a hung task fails
// it (runtime/watchdog.h). Main thread only.
#pragma once
#include <cstdint>
#include <functional>

namespace nn {

int64_t unfinished_tasks();
void wait_done();  // until every submitted task is done; errors stay pending
void wait_all();   // the same, and throws pending errors
void wait_for(const std::function<bool()>& done);
void wait_for_tasks();  // until every submitted task is done; signals do not end it

// Every entry of the C API calls this: throws the error of a failed task, once, or Interrupted.
void check_pending();

void idle();          // waits, then lets the workers sleep until the next submission
void ensure_awake();  // before a submission

}  // namespace nn
