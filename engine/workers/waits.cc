#include "engine/workers/waits.h"

#include <semaphore.h>
#include <starpu.h>
#include <time.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/base/waiting.h"
#include "engine/profile/records.h"
#include "engine/ranks/transport.h"
#include "engine/workers/deferred.h"
#include "engine/workers/failures.h"
#include "engine/workers/watchdog.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

bool asleep = false;  // the workers

struct Semaphore {
    sem_t count;
    Semaphore() { sem_init(&count, 0, 0); }
    ~Semaphore() { sem_destroy(&count); }
};

// Short pauses first: most waits are over within a millisecond. With GPUs this thread has a core of
// its own (engine/machine/host.cc), and steps are short.
void pause(int rounds) {
    const timespec t{0, rounds < 50 || has_gpu_workers() ? 20'000 : 500'000};
    nanosleep(&t, nullptr);
}

}  // namespace

int64_t unfinished_tasks() {
    return running() ? starpu_task_nsubmitted() + transport::under_way() : 0;
}

void wait_for(const std::function<bool()>& done) {
    if (done()) return;
    const ProfileSpan span(ProfileSpan::wait);
    const Waiting waiting("tasks, or a file that is written");
    for (int rounds = 0; !done(); ++rounds) {
        check_interrupt();
        check_for_hangs();
        pause(rounds);
    }
}

HeldTile wait_and_hold(StarpuHandle handle, bool write) {
    const auto granted = std::make_shared<Semaphore>();
    HeldTile held = hold_in_ram(handle, write, [granted] { sem_post(&granted->count); });
    const ProfileSpan span(ProfileSpan::wait);
    const Waiting waiting("tasks that use a tile");
    while (true) {
        check_interrupt();
        timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 20'000'000;
        until.tv_sec += until.tv_nsec / 1'000'000'000, until.tv_nsec %= 1'000'000'000;
        if (sem_timedwait(&granted->count, &until) == 0) return held;
        check_for_hangs();
    }
}

void wait_done() {
    if (!running()) return;
    ensure_awake();
    wait_for([] { return unfinished_tasks() == 0; });
}

void wait_all() {
    if (!running()) return;
    finish_deferred();
    wait_done();
    check_pending();
}

void wait_for_tasks() {
    const InterruptsDeferred until_all_are_done;
    wait_done();
}

void check_pending() {
    if (has_error()) {
        finish_deferred();  // before the error is forgotten: it may concern their operands
        wait_for_tasks();
        mark_failed_tiles();
        throw Error(take_error());
    }
    check_interrupt();
}

void idle() {
    if (!running() || asleep) return;
    wait_done();
    starpu_pause();
    asleep = true;
}

void ensure_awake() {
    if (!asleep) return;
    starpu_resume();
    asleep = false;
}

}  // namespace nn
