// Ranks that stand still: the main thread of every rank waits, no task runs, and for NNLUA_WATCHDOG
// seconds no task, message, transfer or write has ended anywhere. Rank 0 then asks every rank what
// it waits for, and ends all. The control channel (control.cc) carries the states and reports.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace nn::standstill {

struct Workers {
    uint64_t begun_and_ended;  // a count of the tasks
    bool are_busy;             // one runs
};
void set_workers(Workers (*workers)());  // once they exist

std::string state();   // of this rank; the same as long as it stands still, "" if it computes
std::string report();  // what this rank waits for, with the stacks of its threads; takes seconds

// On rank 0.
class Watch {
public:
    Watch(int ranks, double limit);  // seconds; 0: none
    // From each rank about every second.
    void note(int rank, const std::string& state, double now);
    void note_report(int rank, const std::string& report);
    // What to do now: to ask for the reports, or later to end all ranks with error().
    enum class Step { nothing, ask, end };
    Step next(double now);
    std::string error() const;

private:
    struct Rank {
        std::string state, report;
        double noted = 0;  // when the last state arrived
        double idle = 0;   // seconds with the same one
    };
    bool stands_still() const;

    const double limit_;
    std::vector<Rank> ranks_;
    double asked_ = 0;  // when; 0: not yet
};

}  // namespace nn::standstill
