#include "engine/runtime/host_copy.h"

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

// The layout of a tile in the user's row-major array.
struct HostCopy {
    Block block;
    Dims host_strides;
    size_t element;
    bool to_host;

    // Copies the rows of all axes from `axis` on; `tile` moves on behind them.
    void copy(size_t axis, char* host, char*& tile) const {
        if (axis + 1 >= block.extent.size()) {
            const size_t bytes = size_t(block.extent.empty() ? 1 : block.extent.back()) * element;
            std::memcpy(to_host ? host : tile, to_host ? tile : host, bytes);
            tile += bytes;
            return;
        }
        for (int64_t i = 0; i < block.extent[axis]; ++i)
            copy(axis + 1, host + size_t(i * host_strides[axis]) * element, tile);
    }
};

void copy_tile(const HostCopy& copy, char* host, Tile& tile) {
    for (size_t i = 0; i < copy.block.start.size(); ++i)
        host += size_t(copy.block.start[i] * copy.host_strides[i]) * copy.element;
    start();
    ensure_awake();
    const starpu_data_handle_t handle = handle_of(tile);
    acquire(handle, copy.to_host ? STARPU_R : STARPU_W);
    const std::unique_ptr<_starpu_data_state, void (*)(starpu_data_handle_t)> held(
        handle, [](starpu_data_handle_t h) { starpu_data_release_on_node(h, STARPU_MAIN_RAM); });
    check_pending();
    char* data = static_cast<char*>(starpu_data_get_local_ptr(handle));
    copy.copy(0, host, data);
    tile.value = Tile::Value::written;
}

void transfer(const Tensor& t, char* host, bool to_host) {
    for (int64_t i = 0; i < t.tiles(); ++i)
        copy_tile({t.block(i), row_major_strides(t.shape()), dtype_size(t.dtype()), to_host}, host,
                  *t.tile(i));
}

}  // namespace

void read_tensor(const Tensor& tensor, void* out) {
    if (recording_number())
        fail(
            "a value cannot be read while a compiled function is being recorded; return the tensor "
            "from it instead");
    if (tensor.temporary())
        fail(
            "this tensor exists only inside the compiled function that made it; return it from "
            "there");
    for (int64_t i = 0; i < tensor.tiles(); ++i) tensor.tile(i)->check_readable("read");
    transfer(tensor, static_cast<char*>(out), true);
}

void write_tensor(const Tensor& tensor, const void* in) {
    if (recording_number())
        fail("host data cannot be written while a compiled function is being recorded");
    if (tensor.is_view()) fail("a view cannot be written; write to the tensor it was taken from");
    if (tensor.temporary()) fail("host data cannot be written to a tensor of a compiled function");
    tensor.changed();  // also where an interrupt ends the writing half-way
    transfer(tensor, static_cast<char*>(const_cast<void*>(in)), false);
}

}  // namespace nn
