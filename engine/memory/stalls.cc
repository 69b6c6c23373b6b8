#include "engine/memory/stalls.h"

#include <mutex>

#include "engine/base/clock.h"

namespace nn {

std::atomic<bool> stalls_on{false};

namespace {

struct Stalls {
    std::mutex mutex;
    int transferring = 0;                  // disks
    int computing = 0;                     // workers
    double last = 0;                       // when the sums below were up to date
    double transferred = 0, computed = 0;  // seconds with a transfer; of workers in these

    void pass() {
        const double now = now_seconds();
        if (transferring > 0) {
            transferred += now - last;
            computed += computing * (now - last);
        }
        last = now;
    }
};
// Never destroyed: tasks may outlive everything else.
Stalls& stalls() {
    static auto* const instance = new Stalls;
    return *instance;
}

void count(int Stalls::*counter, int change) {
    const std::lock_guard lock(stalls().mutex);
    stalls().pass();
    stalls().*counter += change;
}

}  // namespace

void measure_stalls(bool on) { stalls_on = on; }

void transfers_begin() { count(&Stalls::transferring, 1); }
void transfers_end() { count(&Stalls::transferring, -1); }
void count_computing(int change) { count(&Stalls::computing, change); }

double stalled_seconds(int workers) {
    const std::lock_guard lock(stalls().mutex);
    stalls().pass();
    const double seconds = workers * stalls().transferred - stalls().computed;
    return seconds > 0 ? seconds : 0;
}

}  // namespace nn
