#include "engine/runtime/interrupts.h"

#include <csignal>

#include "engine/base/error.h"

namespace nn {
namespace {

volatile std::sig_atomic_t requested = 0;
bool deferred_by_caller = false;
int deferrals = 0;  // within calls of the engine

}  // namespace

void request_interrupt() { requested = 1; }
bool interrupt_requested() { return requested != 0; }

bool clear_interrupt() {
    const bool was = requested != 0;
    requested = 0;
    return was;
}

void check_interrupt() {
    if (requested && !deferred_by_caller && deferrals == 0) throw Interrupted();
}

bool interrupts_deferred() { return deferred_by_caller; }
void defer_interrupts(bool deferred) { deferred_by_caller = deferred; }
InterruptsDeferred::InterruptsDeferred() { ++deferrals; }
InterruptsDeferred::~InterruptsDeferred() { --deferrals; }

}  // namespace nn
