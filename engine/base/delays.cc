#include "engine/base/delays.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>

namespace nn {
namespace {

// The finalizer of MurmurHash3: a random number in [0, 1) for each input.
double uniform(uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
    return double((x ^ (x >> 33)) >> 11) * 0x1p-53;
}

}  // namespace

void wait_randomly(double share) {
    static const uint64_t seed = std::strtoull(std::getenv("NNLUA_DELAYS"), nullptr, 10) << 32;
    static std::atomic<uint64_t> calls{0};
    const uint64_t number = seed + 2 * ++calls;
    if (uniform(number) >= share) return;
    const double kind = uniform(number + 1), of_short = 0.998;
    const double microseconds = kind < of_short
                                    ? 10 * std::pow(400, kind / of_short)
                                    : 20'000 * std::pow(10, (kind - of_short) / (1 - of_short));
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(microseconds));
}

}  // namespace nn
