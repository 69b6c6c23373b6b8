#include "kernels/team.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace nn::team {
namespace {

// The shared loop. Helpers work on one loop at a time; other loops run on their own thread alone.
//
// `state` packs the number of the loop, its length and the next index. A thread takes a chunk by
// one compare-exchange of the state. If the loop has ended meanwhile, this fails, and the thread
// does not use the body and context that it read.
constexpr int index_bits = 20;
constexpr uint64_t index_mask = (uint64_t(1) << index_bits) - 1;
struct Loop {
    alignas(64) std::atomic<uint64_t> state{0};
    std::atomic<Body> body{nullptr};
    std::atomic<void*> context{nullptr};
    alignas(64) std::atomic<int64_t> finished{0};  // indices
    std::atomic<bool> out_of_memory{false};
    alignas(64) std::atomic<bool> busy{false};
    std::atomic<int> helpers{0};
};
Loop loop;

// Spins before it yields the core: the next chunk usually comes within microseconds.
void pause(int spins) {
    if (spins > 2000) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Runs one chunk; false if none is left. Large chunks read long runs of memory; they shrink towards
// the end, so that all threads finish together.
bool run_chunk() {
    uint64_t state = loop.state.load(std::memory_order_acquire);
    while (true) {
        const uint64_t next = state & index_mask, length = state >> index_bits & index_mask;
        if (next >= length) return false;
        const uint64_t threads = uint64_t(std::max(1, loop.helpers.load())) + 1;
        const uint64_t count = std::max<uint64_t>(1, (length - next) / (2 * threads));
        const Body body = loop.body.load(std::memory_order_relaxed);
        void* const context = loop.context.load(std::memory_order_relaxed);
        if (!loop.state.compare_exchange_weak(state, state + count, std::memory_order_acq_rel,
                                              std::memory_order_acquire))
            continue;
        try {
            body(context, int64_t(next), int64_t(next + count));
        } catch (const std::bad_alloc&) {
            loop.out_of_memory = true;
        }
        loop.finished.fetch_add(int64_t(count), std::memory_order_release);
        return true;
    }
}

}  // namespace

void parallel_for(int64_t length, Body body, void* context) {
    if (length < 2 || length > int64_t(index_mask) || loop.helpers == 0 ||
        loop.busy.exchange(true, std::memory_order_acquire)) {
        body(context, 0, length);
        return;
    }
    loop.body.store(body, std::memory_order_relaxed);
    loop.context.store(context, std::memory_order_relaxed);
    loop.finished.store(0, std::memory_order_relaxed);
    loop.out_of_memory = false;
    const uint64_t number = (loop.state.load(std::memory_order_relaxed) >> 2 * index_bits) + 1;
    loop.state.store(number << 2 * index_bits | uint64_t(length) << index_bits,
                     std::memory_order_release);
    while (run_chunk()) {
    }
    for (int spins = 0; loop.finished.load(std::memory_order_acquire) != length; ++spins)
        pause(spins);
    const bool failed = loop.out_of_memory;
    loop.busy.store(false, std::memory_order_release);
    if (failed) throw std::bad_alloc();
}

void help(int max_helpers, bool (*wanted)()) {
    if (loop.helpers.fetch_add(1) < max_helpers)
        for (int spins = 0; wanted(); ++spins) {
            if (run_chunk())
                spins = 0;
            else
                pause(spins);
        }
    loop.helpers.fetch_sub(1);
}

}  // namespace nn::team
