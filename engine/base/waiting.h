// What the main thread waits for, and a count of what has ended: for ranks that stand still
// (engine/ranks/standstill.h).
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace nn {

// While one exists, the main thread waits for `what`. Main thread only.
class Waiting {
public:
    explicit Waiting(const std::string& what);
    ~Waiting();
    Waiting(const Waiting&) = delete;

private:
    std::string before_;
};
std::string main_thread_waits_for();  // "": it computes. Any thread.

// Counts messages, transfers and writes of files that have ended. Any thread.
inline std::atomic<int64_t> ended_events{0};
// While one exists, a call of the system may take long, and nothing can be counted.
struct LongCall {
    static inline std::atomic<int> count{0};
    LongCall() { ++count; }
    ~LongCall() { --count; }
    LongCall(const LongCall&) = delete;
};

// Seconds without progress that are an error, of NNLUA_WATCHDOG; 0: no limit. Throws if it is no
// number.
double watchdog_limit();

}  // namespace nn
