#include "engine/ranks/standstill.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/stacks.h"
#include "engine/base/waiting.h"
#include "engine/ranks/transport.h"
#include "engine/ranks/watch.h"

namespace nn::standstill {
namespace {

constexpr double seconds_to_report = 10;

std::atomic<Workers (*)()> workers_of_session{nullptr};

Workers workers() {
    Workers (*const function)() = workers_of_session;
    return function ? function() : Workers{0, false};
}

}  // namespace

void set_workers(Workers (*workers)()) { workers_of_session = workers; }

std::string state() {
    const std::string waits_for = main_thread_waits_for();
    const Workers now = workers();
    if (waits_for.empty() || now.are_busy) return "";
    return format("%llu %lld ", static_cast<unsigned long long>(now.begun_and_ended),
                  static_cast<long long>(ended_events)) +
           waits_for;
}

std::string report() {
    const std::string waits_for = main_thread_waits_for();
    return (waits_for.empty() ? "it computes now" : "it waits for " + waits_for) +
           transport::description_of_transfers() + "\n" + stacks_of_threads();
}

Watch::Watch(int ranks, double limit)
    : limit_(limit), states_(size_t(ranks)), reports_(size_t(ranks)) {}

void Watch::note(int rank, const std::string& state) {
    const bool changes = std::exchange(states_[size_t(rank)], state) != state;
    if (state.empty() || changes) idle_ = 0;
}

void Watch::note_report(int rank, const std::string& report) { reports_[size_t(rank)] = report; }

Watch::Step Watch::next(double now) {
    // A pause of this process, as by Ctrl-Z, is no standstill.
    const double elapsed = std::min(now - std::exchange(before_, now), 2 * beat_interval);
    if (has_asked_) {
        waited_ += elapsed;
        const bool has_all = std::ranges::none_of(reports_, &std::string::empty);
        return has_all || waited_ > seconds_to_report ? Step::end : Step::nothing;
    }
    idle_ += elapsed;
    has_asked_ =
        limit_ > 0 && idle_ >= limit_ && std::ranges::none_of(states_, &std::string::empty);
    return has_asked_ ? Step::ask : Step::nothing;
}

std::string Watch::error() const {
    std::string out = format(
        "the ranks stand still: no task and no message has ended for %g s; NNLUA_WATCHDOG=SECONDS "
        "sets this limit (0: none)",
        limit_);
    for (size_t rank = 0; rank < reports_.size(); ++rank)
        out +=
            format("\nrank %zu: ", rank) + (reports_[rank].empty() ? "no report" : reports_[rank]);
    return out;
}

}  // namespace nn::standstill
