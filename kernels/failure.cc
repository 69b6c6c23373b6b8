// Injected failures: NNLUA_FAIL_KERNEL=name:n, name:n:status:k, name:n:hang or name:n:seconds, as
// kernel.h describes them. Calls are counted over all workers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels/kernel.h"

namespace nn {
namespace {

struct Failure {
    std::string kernel;
    long call = 0;        // which call fails; 0: none
    double seconds = -1;  // how long the call stalls; -1: it fails instead
    long status = 1;      // which status of the call is a failure
};

// Reads "status:k", "hang" or "seconds"; false if the text is none of them.
bool parse_kind(const char* text, Failure* failure) {
    char* end = nullptr;
    if (std::strcmp(text, "hang") == 0) {
        failure->seconds = HUGE_VAL;
        return true;
    }
    if (std::strncmp(text, "status:", 7) == 0) {
        failure->status = std::strtol(text + 7, &end, 10);
        return failure->status >= 1 && !*end;
    }
    failure->seconds = std::strtod(text, &end);
    return failure->seconds >= 0 && end != text && !*end;
}

Failure parse(const char* text) {
    if (!text || !*text) return {};
    const char* colon = std::strchr(text, ':');
    Failure failure;
    failure.kernel = colon ? std::string(text, colon) : text;
    failure.call = colon ? std::atol(colon + 1) : 1;
    const char* kind = colon ? std::strchr(colon + 1, ':') : nullptr;
    if (failure.call < 1 || !find_kernel(failure.kernel) ||
        (kind && !parse_kind(kind + 1, &failure)))
        throw std::runtime_error("NNLUA_FAIL_KERNEL is '" + std::string(text) +
                                 "'; give a kernel's name and the number of a call, such as "
                                 "gemm:3, or gemm:3:hang or gemm:3:SECONDS for a stall");
    return failure;
}

Failure& injected() {
    static Failure failure = parse(std::getenv("NNLUA_FAIL_KERNEL"));
    return failure;
}

std::atomic<long> calls{0};
thread_local long statuses_left = 0;  // until the one that fails; 0: none fails

}  // namespace

void inject_failure(const char* text) {
    injected() = parse(text);
    calls = 0;
}

void announce_call(const char* kernel) {
    const Failure& failure = injected();
    const bool now = failure.call > 0 && failure.kernel == kernel && ++calls == failure.call;
    statuses_left = now && failure.seconds < 0 ? failure.status : 0;
    if (!now || failure.seconds < 0) return;
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - start).count() < failure.seconds)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

bool failure_is_injected() { return injected().call > 0; }
bool take_failure() { return statuses_left > 0 && --statuses_left == 0; }

}  // namespace nn
