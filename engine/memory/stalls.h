// How long workers have nothing to do while the disk transfers tiles. Measured only with memory
// tiers: two changes of a counter per task.
#pragma once
#include <atomic>

namespace nn {

extern std::atomic<bool> stalls_on;
void measure_stalls(bool on);
// Seconds so far, summed over `workers` workers, in which a worker computed nothing although a
// transfer was under way. The time in which it had no task for other reasons counts too.
double stalled_seconds(int workers);

void transfers_begin();  // the first of several; by the disk
void transfers_end();    // the last of them

void count_computing(int change);
// The calling worker computes while the object exists.
class Computing {
public:
    explicit Computing(bool on = true) : on_(on && stalls_on.load(std::memory_order_relaxed)) {
        if (on_) count_computing(1);
    }
    ~Computing() {
        if (on_) count_computing(-1);
    }
    Computing(const Computing&) = delete;

private:
    const bool on_;
};

}  // namespace nn
