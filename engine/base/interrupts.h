// Requests to stop: a signal sets a flag, which waits, loops of long work and calls of the C API
// test.
#pragma once
#include <csignal>

#include "engine/base/error.h"
#include "engine/base/heap.h"

namespace nn {

struct Interrupts {
    volatile std::sig_atomic_t requested = 0;
    bool deferred_by_caller = false;
    bool deferred_in_plans = true;  // if deferred by the caller
    int deferrals = 0;              // by calls of the engine
    int plans = 0;                  // that are being made
    bool recording = false;         // a program
};
inline Interrupts interrupts;

inline void request_interrupt() { interrupts.requested = 1; }  // async-signal-safe
inline bool interrupt_requested() { return interrupts.requested != 0; }
inline bool clear_interrupt() {  // returns whether the flag was set
    const bool was = interrupt_requested();
    interrupts.requested = 0;
    return was;
}

// By the caller of the engine. in_plans: also while programs are recorded and planned.
inline void defer_interrupts(bool deferred, bool in_plans = true) {
    interrupts.deferred_by_caller = deferred;
    interrupts.deferred_in_plans = in_plans;
}
inline bool interrupts_deferred() {  // async-signal-safe
    const bool plans = interrupts.plans > 0 || interrupts.recording;
    return interrupts.deferred_by_caller && (interrupts.deferred_in_plans || !plans);
}
// While interrupts are deferred, by the caller of the engine or within one of its calls, only
// interrupt_requested() reports them.
inline bool must_stop() {
    return interrupts.requested && !interrupts_deferred() && interrupts.deferrals == 0;
}
inline void check_interrupt() {
    if (must_stop()) throw Interrupted();
}
// While a program is recorded or planned, which takes memory that nothing needs afterwards.
struct Planning {
    Planning() { ++interrupts.plans; }
    ~Planning() {
        if (--interrupts.plans == 0) return_free_memory();
    }
    Planning(const Planning&) = delete;
};
struct InterruptsDeferred {
    InterruptsDeferred() { ++interrupts.deferrals; }
    ~InterruptsDeferred() { --interrupts.deferrals; }
    InterruptsDeferred(const InterruptsDeferred&) = delete;
};

}  // namespace nn
