// The clocks of the engine.
#pragma once
#include <time.h>

namespace nn {

inline double clock_seconds(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// Seconds of a monotonic clock, the same as nn.now() in Lua.
inline double now_seconds() { return clock_seconds(CLOCK_MONOTONIC); }
// The same in microseconds, as profiles record times.
inline double now_us() { return now_seconds() * 1e6; }
// CPU seconds of the calling thread: time spent waiting for a core does not count.
inline double thread_cpu_seconds() { return clock_seconds(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace nn
