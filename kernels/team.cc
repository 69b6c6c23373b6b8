#include "kernels/team.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace nn::team {
namespace {

// One loop at a time is helped with; others meanwhile run on their own thread alone.
//
// A ticket is (loop's number, its length, the next index to take). Taking a part is one exchange of
// the ticket, which fails if the loop ended meanwhile: then its body and context are not used.
constexpr int index_bits = 20;
constexpr uint64_t index_mask = (uint64_t(1) << index_bits) - 1;
struct Loop {
    alignas(64) std::atomic<uint64_t> ticket{0};
    std::atomic<Body> body{nullptr};
    std::atomic<void*> context{nullptr};
    alignas(64) std::atomic<int64_t> done{0};
    std::atomic<bool> out_of_memory{false};
    alignas(64) std::atomic<bool> taken{false};
    std::atomic<int> helpers{0};
};
Loop shared;

// Waiting threads leave the core to others only after a while: the next part comes within
// microseconds.
void pause(int spins) {
    if (spins > 2000) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Runs a part of the loop in progress; false where none is left. Parts become smaller towards the
// end: few, so that each reads a long run of memory, and threads that finish together.
bool take() {
    uint64_t ticket = shared.ticket.load(std::memory_order_acquire);
    while (true) {
        const uint64_t next = ticket & index_mask, length = ticket >> index_bits & index_mask;
        if (next >= length) return false;
        const uint64_t threads = uint64_t(std::max(1, shared.helpers.load())) + 1;
        const uint64_t count = std::max<uint64_t>(1, (length - next) / (2 * threads));
        const Body body = shared.body.load(std::memory_order_relaxed);
        void* const context = shared.context.load(std::memory_order_relaxed);
        if (!shared.ticket.compare_exchange_weak(ticket, ticket + count, std::memory_order_acq_rel,
                                                 std::memory_order_acquire))
            continue;
        try {
            body(context, int64_t(next), int64_t(next + count));
        } catch (const std::bad_alloc&) {
            shared.out_of_memory = true;
        }
        shared.done.fetch_add(int64_t(count), std::memory_order_release);
        return true;
    }
}

}  // namespace

void split(int64_t length, Body body, void* context) {
    if (length < 2 || length > int64_t(index_mask) || shared.helpers == 0 ||
        shared.taken.exchange(true, std::memory_order_acquire)) {
        body(context, 0, length);
        return;
    }
    shared.body.store(body, std::memory_order_relaxed);
    shared.context.store(context, std::memory_order_relaxed);
    shared.done.store(0, std::memory_order_relaxed);
    shared.out_of_memory = false;
    const uint64_t number = (shared.ticket.load(std::memory_order_relaxed) >> 2 * index_bits) + 1;
    shared.ticket.store(number << 2 * index_bits | uint64_t(length) << index_bits,
                        std::memory_order_release);
    while (take()) {
    }
    for (int spins = 0; shared.done.load(std::memory_order_acquire) != length; ++spins)
        pause(spins);
    const bool failed = shared.out_of_memory;
    shared.taken.store(false, std::memory_order_release);
    if (failed) throw std::bad_alloc();
}

void help(int most, bool (*wanted)()) {
    if (shared.helpers.fetch_add(1) < most)
        for (int spins = 0; wanted(); ++spins) {
            if (take())
                spins = 0;
            else
                pause(spins);
        }
    shared.helpers.fetch_sub(1);
}

}  // namespace nn::team
