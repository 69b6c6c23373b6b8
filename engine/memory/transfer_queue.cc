#include "engine/memory/transfer_queue.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "engine/base/clock.h"
#include "engine/base/delays.h"
#include "engine/base/threads.h"
#include "engine/base/waiting.h"
#include "engine/memory/memory_uses.h"
#include "engine/memory/stalls.h"
#include "engine/memory/transfer_log.h"

namespace nn {

TransferQueue::TransferQueue(const Options& options, CarryOut carry_out)
    : options_(options), carry_out_(std::move(carry_out)), process_(getpid()) {
    for (int i = 0; i < (options_.two_links ? 2 : 1); ++i)
        links_.push_back(std::make_unique<Link>());
    const SignalsBlocked in_the_threads;
    try {
        for (const auto& link : links_)
            for (int i = 0; i < options_.threads; ++i) {
                threads_.push_back(new_thread([this, to = link.get()] { work(*to); }));
                pthread_setname_np(threads_.back().native_handle(), options_.threads_name);
            }
    } catch (...) {
        end_threads();
        throw;
    }
}

TransferQueue::~TransferQueue() {
    if (!is_in_fork()) {
        end_threads();
        return;
    }
    for (std::thread& thread : threads_) thread.detach();
    // The end of their condition variables would wait for these threads.
    for (auto& link : links_) static_cast<void>(link.release());
}

bool TransferQueue::is_in_fork() const { return getpid() != process_; }

void TransferQueue::end_threads() {
    {
        std::lock_guard lock(mutex_);
        closing_ = true;
    }
    for (const auto& link : links_) link->changed.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

TransferQueue::Link& TransferQueue::link_of(const Transfer& transfer) const {
    return *links_[options_.two_links && transfer.writes];
}

void TransferQueue::add(Transfer transfer) {
    Link& link = link_of(transfer);
    const double added = options_.bytes_per_second > 0 ? now_seconds() : 0, queued = now_us();
    {
        std::lock_guard lock(mutex_);
        link.waiting.push({std::move(transfer), transfers_++, added, queued});
    }
    link.changed.notify_one();
}

TransferTotals TransferQueue::totals() const {
    std::lock_guard lock(mutex_);
    TransferTotals out = totals_;
    if (under_way_) out.busy += now_seconds() - busy_since_;
    return out;
}

void TransferQueue::work(Link& link) {
    if (options_.bytes_per_second > 0) prctl(PR_SET_TIMERSLACK, 1000);  // nanoseconds
    std::unique_lock lock(mutex_);
    for (;;) {
        link.changed.wait(lock, [&] { return closing_ || !link.waiting.empty(); });
        if (link.waiting.empty()) return;
        const Waiting next = link.waiting.top();
        link.waiting.pop();
        if (under_way_++ == 0) {
            busy_since_ = now_seconds();
            transfers_begin();
        }
        const double end = end_of_turn(link, next);
        lock.unlock();
        const std::string error = carry_out(next, end);
        lock.lock();
        if (--under_way_ == 0) {
            totals_.busy += now_seconds() - busy_since_;
            transfers_end();
        }
        (next.transfer.writes ? totals_.written : totals_.read) += next.transfer.bytes;
        lock.unlock();
        delay(0.5);
        next.transfer.done(error);
        ++ended_events;
        lock.lock();
    }
}

std::string TransferQueue::carry_out(const Waiting& next, double end) const {
    const Transfer& transfer = next.transfer;
    const double start = now_us();
    delay(1);
    if (checks_tiles)
        memory_uses::begin(&next, transfer.memory, size_t(transfer.bytes), !transfer.writes,
                           (transfer.writes ? "a store of " : "a load of ") + transfer.what.text);
    std::string error = carry_out_(transfer);
    const std::string problem = memory_uses::end(&next);
    if (error.empty()) error = problem;
    if (end > 0) std::this_thread::sleep_for(std::chrono::duration<double>(end - now_seconds()));
    if (transfer_log().on())
        transfer_log().add({options_.is_disk, transfer.writes, transfer.what.kind, transfer.bytes,
                            next.queued, start, now_us()});
    return error;
}

// With a limit on the rate, transfers take turns on a link of that rate. A turn begins when the
// turn before it ends, even if a thread notices this late, so threads that oversleep lose nothing.
double TransferQueue::end_of_turn(Link& link, const Waiting& next) const {
    if (options_.bytes_per_second <= 0) return 0;
    link.turn_end = std::max(link.turn_end, next.added) +
                    double(next.transfer.bytes) / options_.bytes_per_second;
    return link.turn_end;
}

}  // namespace nn
