#include "engine/tiers/search_time.h"

#include <algorithm>
#include <limits>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/base/progress.h"

namespace nn {
namespace {

double limit = 4, share = 1;
size_t limited = 0, limited_in_trials = 0;

}  // namespace

void limit_search(double seconds) { limit = seconds; }
double search_limit() { return share * limit; }
size_t limited_searches() { return limited; }
size_t limited_plans() { return limited - limited_in_trials; }

SearchShare::SearchShare(double of_time) : before_(share) { share = of_time; }
SearchShare::~SearchShare() { share = before_; }

SearchTime::SearchTime()
    : end_(limit > 0 ? now_seconds() + search_limit() : std::numeric_limits<double>::infinity()),
      order_end_(end_) {}

SearchTime::~SearchTime() {
    limited += was_over_;
    limited_in_trials += was_over_ && share < 1;
    report_work(nullptr);
}

void SearchTime::begin_order(int number, int orders) {
    number_ = number, orders_ = std::max(number, orders);
    const double now = now_seconds();
    order_end_ = number < orders ? now + (end_ - now) / 2 : end_;
}

bool SearchTime::is_over() {
    const bool over = now_seconds() > order_end_ || interrupt_requested();
    was_over_ = was_over_ || over;
    return over;
}

void SearchTime::report(double best_seconds) const {
    report_work(
        format("planning: order %d of %d, best %.3g s a step", number_, orders_, best_seconds)
            .c_str());
}

}  // namespace nn
