// A connection from rank 0 to the launcher. mpirun waits forever for a host that it cannot reach,
// so the launcher ends it some seconds after rank 0 has ended or become silent.
#pragma once
#include <string>

#include "engine/ranks/sockets.h"

namespace nn {

// In the launcher.
class RankWatch {
public:
    RankWatch();  // listens, and sets the variable of the environment by which rank 0 finds it
    ~RankWatch();
    RankWatch(const RankWatch&) = delete;
    void wait(double seconds);  // reads what arrives meanwhile
    // Whether rank 0 was connected and has ended before its work was done, or is silent for longer
    // than the limit of ranks.
    bool has_lost_rank() const { return is_lost_; }
    bool is_between_steps() const { return is_between_steps_; }  // rank 0 saves or ends its run
    bool has_met_rank() const { return has_met_; }               // rank 0 has connected

private:
    void accept_rank();

    const std::string key_;
    int listener_ = -1, socket_ = -1;
    sockets::Inbox inbox_;
    double silence_ = 0, limit_;
    bool has_beat_ = false;  // rank 0 sends no beats while it waits for the other ranks
    bool is_between_steps_ = true, has_met_ = false, is_done_ = false, is_lost_ = false;
};

namespace watch {

void join();  // rank 0: connects to the launcher, if there is one that can be reached
void beat();  // rank 0, about every second
void set_between_steps(bool is);  // rank 0: whether no step of a run computes; its beats say so
void done();                      // rank 0, when all ranks have done their work

}  // namespace watch

double heartbeat_limit();  // seconds, of NNLUA_HEARTBEAT; throws if it makes no sense
constexpr double beat_interval = 1;

}  // namespace nn
