#include "engine/residency/transfer_faults.h"

#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/planted_faults.h"

namespace nn {
namespace {

constexpr auto lateness = std::chrono::milliseconds(30);

void begin(Store& store, Transfer t) {
    if (t.writes)
        store.write(t.place, t.memory, t.bytes, t.order, std::move(t.what), std::move(t.done));
    else
        store.read(t.place, t.memory, t.bytes, t.order, std::move(t.what), std::move(t.done));
}

std::mutex late_mutex;
std::vector<std::thread>& late_threads() {
    static auto* const threads = new std::vector<std::thread>;
    return *threads;
}

// A transfer of which nobody knows.
void begin_later(Store& store, Transfer t) {
    const std::lock_guard lock(late_mutex);
    late_threads().emplace_back([&store, t = std::move(t)]() mutable {
        std::this_thread::sleep_for(lateness);
        std::promise<void> ended;
        t.done = [&](const std::string&) { ended.set_value(); };
        begin(store, std::move(t));
        ended.get_future().wait();
    });
}

}  // namespace

void end_late_transfers() {
    if (!planted::are_wanted) return;
    const std::lock_guard lock(late_mutex);
    for (std::thread& thread : late_threads()) thread.join();
    late_threads().clear();
}

void carry_out(Store& store, Transfer t) {
    using namespace planted;
    if (!are_wanted) return begin(store, std::move(t));
    const bool writes = t.writes;
    const bool is_lost = is_next(writes ? store_lost : load_lost),
               is_late = is_next(writes ? store_late : load_late),
               is_twice = is_next(writes ? store_twice : load_twice),
               is_astray = is_next(writes ? store_astray : load_astray);
    if (is_late || is_twice) begin_later(store, t);
    if (is_lost || is_late) return t.done("");
    // To or from the place before it, or after it.
    if (is_astray) t.place += t.place >= t.bytes ? -t.bytes : t.bytes;
    begin(store, std::move(t));
}

}  // namespace nn
