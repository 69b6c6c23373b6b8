// The time of workers without a task while a transfer is under way.
#include "engine/memory/stalls.h"

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "engine/base/clock.h"
#include "tests/cpp/engine_test.h"

namespace nn::engine_test {
namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Bounds of the time between two calls: what passed inside them, and around them.
struct Bounds {
    double least = 0, most = 0;
};
template <class Begin, class Body, class End> Bounds timed(Begin begin, Body body, End end) {
    const double before = now_seconds();
    auto object = begin();
    const double inside = now_seconds();
    body();
    const double least = now_seconds() - inside;
    end(object);
    return {least, now_seconds() - before};
}

Bounds compute(const std::function<void()>& body) {
    return timed([] { return std::make_unique<Computing>(); }, body,
                 [](std::unique_ptr<Computing>& computing) { computing.reset(); });
}

}  // namespace

TEST_CASE("workers without a task stall only while a transfer is under way") {
    measure_stalls(true);
    const double before = stalled_seconds(3);
    sleep_ms(10);
    CHECK(stalled_seconds(3) == before);
    Bounds one, two;
    const auto transfer = [&] {
        one = compute([&] {
            sleep_ms(10);
            const Computing on_gpu(false);  // does not count
            two = compute([] { sleep_ms(10); });
        });
        sleep_ms(10);
    };
    const Bounds all =
        timed([] { return transfers_begin(), 0; }, transfer, [](int) { transfers_end(); });
    const double stalled = stalled_seconds(3) - before;
    CHECK(stalled > 3 * all.least - one.most - two.most - 1e-6);
    CHECK(stalled < 3 * all.most - one.least - two.least + 1e-6);
    sleep_ms(10);
    CHECK(stalled_seconds(3) - before == stalled);
    measure_stalls(false);
}

TEST_CASE("a worker that began before stalls were measured is not counted at its end") {
    auto* const worker = new Computing;
    measure_stalls(true);
    delete worker;
    const double before = stalled_seconds(1);
    Bounds one;
    const Bounds all =
        timed([] { return transfers_begin(), 0; }, [&] { one = compute([] { sleep_ms(10); }); },
              [](int) { transfers_end(); });
    CHECK(stalled_seconds(1) - before < all.most - one.least + 1e-6);
    measure_stalls(false);
}

}  // namespace nn::engine_test
