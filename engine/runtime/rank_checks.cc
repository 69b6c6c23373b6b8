#include "engine/runtime/rank_checks.h"

#include <starpu.h>

#include <atomic>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/planted_faults.h"
#include "engine/ranks/transport.h"
#include "engine/workers/failures.h"
#include "engine/workers/worker.h"

namespace nn::rank_checks {
namespace {

constexpr int64_t tag_of_sums = int64_t(1) << 62;  // beside those of tiles

struct Sum {
    struct Message {
        uint32_t sum, is_known;
    } message{};
    StarpuHandle handle = nullptr;
    std::atomic<bool> is_free{true};
    Sum() {
        starpu_variable_data_register(&handle, STARPU_MAIN_RAM,
                                      reinterpret_cast<uintptr_t>(&message), sizeof message);
    }
    ~Sum() { starpu_data_unregister(handle); }
};
std::deque<Sum>& sums() {
    static auto* const instance = new std::deque<Sum>;
    return *instance;
}
Sum& free_sum() {
    for (Sum& sum : sums())
        if (sum.is_free.exchange(false)) return sum;
    Sum& sum = sums().emplace_back();
    sum.is_free = false;
    return sum;
}

struct Access {
    StarpuHandle handle;
    starpu_data_access_mode mode;
};
void call(void* function) {
    const std::unique_ptr<std::function<void()>> f(static_cast<std::function<void()>*>(function));
    (*f)();
}
// Calls f on some thread, as a task that uses these handles and occupies no worker.
void submit_call(std::initializer_list<Access> accesses, std::function<void()> f) {
    static starpu_codelet* const codelet = nowhere_codelet("check", STARPU_VARIABLE_NBUFFERS);
    starpu_task* const task = starpu_task_create();
    task->cl = codelet;
    task->where = STARPU_NOWHERE;
    for (const Access& access : accesses) {
        task->handles[task->nbuffers] = access.handle;
        task->modes[task->nbuffers++] = access.mode;
    }
    task->prologue_callback_func = call;
    task->prologue_callback_arg = new std::function<void()>(std::move(f));
    if (starpu_task_submit(task) != 0) fail("StarPU cannot submit the check of a tile");
}

void* in_ram(StarpuHandle handle) { return starpu_data_handle_to_pointer(handle, STARPU_MAIN_RAM); }

void check(StarpuHandle tile, tile_checks::Value value, int from, const Sum::Message& message) {
    if (planted::is_next(planted::message_altered)) *static_cast<char*>(in_ram(tile)) ^= 1;
    const tile_checks::Bytes bytes{in_ram(tile), starpu_data_get_size(tile)};
    const uint32_t sum = tile_checks::sum_of(bytes);
    if (message.is_known && sum == message.sum)
        return tile_checks::note(tile, value, bytes, "a message");
    note_transfer(tile, format("receive: tile %llu from rank %d has the CRC-32 %08x, but that rank "
                               "has %08x%s",
                               static_cast<unsigned long long>(value.tile), from, sum, message.sum,
                               message.is_known ? "" : " of another value"));
}

}  // namespace

void send_sum(StarpuHandle tile, tile_checks::Value value, int to, int64_t tag) {
    if (!tile_checks::on()) return;
    Sum& sum = free_sum();
    submit_call({{tile, STARPU_R}, {sum.handle, STARPU_W}}, [=, &sum] {
        sum.message = {};
        sum.message.is_known = tile_checks::sum_of(tile, value, &sum.message.sum);
    });
    transport::send(sum.handle, value.tile, sizeof sum.message, to, tag | tag_of_sums, 0);
    submit_call({{sum.handle, STARPU_W}}, [&sum] { sum.is_free = true; });
}

void check_received(StarpuHandle tile, tile_checks::Value value, int from, int64_t tag) {
    if (!tile_checks::on()) return;
    Sum& sum = free_sum();
    transport::receive(sum.handle, value.tile, sizeof sum.message, from, tag | tag_of_sums);
    submit_call({{tile, STARPU_RW}, {sum.handle, STARPU_RW}}, [=, &sum] {
        check(tile, value, from, sum.message);
        sum.is_free = true;
    });
}

void stop() { sums().clear(); }

}  // namespace nn::rank_checks
