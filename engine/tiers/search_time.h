// The time of searches for plans: its limit, and reports of what they found so far.
#pragma once
#include <cstddef>

namespace nn {

// From now on, a search takes no longer than these seconds, and neither do all trials of what to
// recompute together; 0: no limit. The first complete plan is always found. Results of programs do
// not depend on their plans.
void limit_search(double seconds);
double search_limit();  // in this scope
// How many searches the limit ended in this process; and without those of trials.
size_t limited_searches();
size_t limited_plans();

// Searches in this scope have a share of the time.
class SearchShare {
public:
    explicit SearchShare(double share);
    ~SearchShare();
    SearchShare(const SearchShare&) = delete;

private:
    const double before_;
};

class SearchTime {
public:
    SearchTime();   // begins now
    ~SearchTime();  // counts the search if is_over() was true
    SearchTime(const SearchTime&) = delete;

    // The `number`th of so many orders is tried now. It may take half of the time that is left,
    // the last ones all of it.
    void begin_order(int number, int orders);
    bool is_over();  // of the current order; also when a signal waits for the plan
    void report(double best_seconds) const;

private:
    const double end_;  // of the search, by now_seconds()
    double order_end_;
    int number_ = 1, orders_ = 1;
    bool was_over_ = false;
};

}  // namespace nn
