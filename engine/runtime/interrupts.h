// Requests to stop: a signal sets a flag, which waits and calls of the C API test.
#pragma once
#include <csignal>

#include "engine/base/error.h"

namespace nn {

struct Interrupts {
    volatile std::sig_atomic_t requested = 0;
    bool deferred_by_caller = false;
    int deferrals = 0;  // by calls of the engine
};
inline Interrupts interrupts;

inline void request_interrupt() { interrupts.requested = 1; }  // async-signal-safe
inline bool interrupt_requested() { return interrupts.requested != 0; }
inline bool clear_interrupt() {  // returns whether the flag was set
    const bool was = interrupt_requested();
    interrupts.requested = 0;
    return was;
}

// While interrupts are deferred, by the caller of the engine or within one of its calls, only
// interrupt_requested() reports them.
inline void check_interrupt() {
    if (interrupts.requested && !interrupts.deferred_by_caller && interrupts.deferrals == 0)
        throw Interrupted();
}
inline bool interrupts_deferred() { return interrupts.deferred_by_caller; }
inline void defer_interrupts(bool deferred) { interrupts.deferred_by_caller = deferred; }
struct InterruptsDeferred {
    InterruptsDeferred() { ++interrupts.deferrals; }
    ~InterruptsDeferred() { --interrupts.deferrals; }
    InterruptsDeferred(const InterruptsDeferred&) = delete;
};

}  // namespace nn
