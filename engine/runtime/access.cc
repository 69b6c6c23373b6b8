#include "engine/runtime/access.h"

#include <semaphore.h>
#include <starpu.h>
#include <time.h>

#include <atomic>
#include <cstring>
#include <memory>

#include "engine/base/error.h"
#include "engine/profile/records.h"
#include "engine/runtime/handles.h"
#include "engine/runtime/interrupts.h"
#include "engine/runtime/session.h"
#include "engine/runtime/waits.h"
#include "engine/runtime/watchdog.h"

namespace nn {
namespace {

// An acquisition cannot be taken back. One that an interrupt left behind releases itself when it
// comes.
struct Acquisition {
    enum { waiting, ready, abandoned };
    std::atomic<int> state{waiting};
    starpu_data_handle_t handle;
    sem_t came;  // the last that on_acquired touches
    explicit Acquisition(starpu_data_handle_t h) : handle(h) { sem_init(&came, 0, 0); }
    ~Acquisition() { sem_destroy(&came); }
};

// A semaphore wakes the thread at once: polling would slow down text generation. A signal that
// comes just before sem_timedwait is noticed after 20 ms.
void wait_for_acquisition(Acquisition& a) {
    const ProfileSpan span(ProfileSpan::wait);
    while (true) {
        check_interrupt();
        timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 20'000'000;
        until.tv_sec += until.tv_nsec / 1'000'000'000, until.tv_nsec %= 1'000'000'000;
        if (sem_timedwait(&a.came, &until) == 0) return;
        look_for_hangs();
    }
}

void on_acquired(void* context) {
    Acquisition* a = static_cast<Acquisition*>(context);
    int expected = Acquisition::waiting;
    if (a->state.compare_exchange_strong(expected, Acquisition::ready)) {
        sem_post(&a->came);
        return;
    }
    starpu_data_release_on_node(a->handle, STARPU_MAIN_RAM);
    delete a;
}

// Waits for the tile; the caller must release it.
void acquire(starpu_data_handle_t handle, starpu_data_access_mode mode) {
    auto acquisition = std::make_unique<Acquisition>(handle);
    const int status = starpu_data_acquire_on_node_cb(handle, STARPU_MAIN_RAM, mode, on_acquired,
                                                      acquisition.get());
    if (status != 0) fail("StarPU refuses to hand out a tile (%s)", std::strerror(-status));
    try {
        wait_for_acquisition(*acquisition);
    } catch (...) {
        int expected = Acquisition::waiting;
        if (acquisition->state.compare_exchange_strong(expected, Acquisition::abandoned)) {
            acquisition.release();  // on_acquired deletes it
        } else {
            while (sem_wait(&acquisition->came) != 0) {
            }
            starpu_data_release_on_node(handle, STARPU_MAIN_RAM);
        }
        throw;
    }
}

void access(Tile& tile, starpu_data_access_mode mode, void (*use)(void*, void*), void* context) {
    start();
    ensure_awake();
    const starpu_data_handle_t handle = handle_of(tile);
    acquire(handle, mode);
    const std::unique_ptr<_starpu_data_state, void (*)(starpu_data_handle_t)> held(
        handle, [](starpu_data_handle_t h) { starpu_data_release_on_node(h, STARPU_MAIN_RAM); });
    check_pending();
    use(starpu_data_get_local_ptr(handle), context);
}

}  // namespace

void wait_readable(Tile& tile, void (*use)(void*, void*), void* context) {
    access(tile, STARPU_R, use, context);
}
void wait_writable(Tile& tile, void (*use)(void*, void*), void* context) {
    access(tile, STARPU_W, use, context);
}

}  // namespace nn
