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

constexpr double seconds_to_report = 15;

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
    if (waits_for.empty() || now.are_busy || LongCall::count > 0) return "";
    return format("%llu %lld ", static_cast<unsigned long long>(now.begun_and_ended),
                  static_cast<long long>(ended_events)) +
           waits_for;
}

std::string report() {
    const std::string waits_for = main_thread_waits_for();
    return (waits_for.empty() ? "it computes now" : "it waits for " + waits_for) +
           transport::description_of_transfers() + "\n" + stacks_of_threads();
}

Watch::Watch(int ranks, double limit) : limit_(limit), ranks_(size_t(ranks)) {}

void Watch::note(int rank, const std::string& state, double now) {
    Rank& one = ranks_[size_t(rank)];
    const bool goes_on = state.empty() || std::exchange(one.state, state) != state;
    one.state = state;
    // A pause of a process, as by Ctrl-Z, is no standstill.
    const double elapsed = std::min(now - std::exchange(one.noted, now), 2 * beat_interval);
    one.idle = goes_on ? 0 : one.idle + elapsed;
    if (goes_on) asked_ = 0;
}

void Watch::note_report(int rank, const std::string& report) {
    ranks_[size_t(rank)].report = report;
}

bool Watch::stands_still() const {
    return limit_ > 0 &&
           std::ranges::all_of(ranks_, [this](const Rank& one) { return one.idle >= limit_; });
}

Watch::Step Watch::next(double now) {
    if (asked_ > 0) {
        const bool has_all =
            std::ranges::none_of(ranks_, [](const Rank& one) { return one.report.empty(); });
        return has_all || now - asked_ > seconds_to_report ? Step::end : Step::nothing;
    }
    if (!stands_still()) return Step::nothing;
    for (Rank& one : ranks_) one.report.clear();
    asked_ = now;
    return Step::ask;
}

std::string Watch::error() const {
    std::string out = format(
        "the ranks stand still: no task, message, transfer or write has ended for %g s; "
        "NNLUA_WATCHDOG=SECONDS sets this limit (0: none)",
        limit_);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const std::string& report = ranks_[rank].report;
        out += format("\nrank %zu: ", rank) + (report.empty() ? "no report" : report);
    }
    return out;
}

}  // namespace nn::standstill
