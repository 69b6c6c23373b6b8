// Requests to stop: a signal sets a flag, which every wait and every entry of the C API tests.
#pragma once

namespace nn {

void request_interrupt();  // async-signal-safe
bool interrupt_requested();
bool clear_interrupt();  // true if there was one
void check_interrupt();  // throws Interrupted, unless interrupts are deferred

// While interrupts are deferred, by the caller of the engine or within one of its calls, only
// interrupt_requested() reports them.
bool interrupts_deferred();  // by the caller
void defer_interrupts(bool deferred);
struct InterruptsDeferred {
    InterruptsDeferred();
    ~InterruptsDeferred();
    InterruptsDeferred(const InterruptsDeferred&) = delete;
};

}  // namespace nn
