// Failures on purpose: NNLUA_FAIL_KERNEL=name:n, or name:n:status:k for its k-th status; and
// stalls, name:n:hang or name:n:seconds. Calls are counted over all workers.
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

struct Injected {
    std::string kernel;
    long call = 0;        // 0: none
    double seconds = -1;  // how long the call stalls instead of failing; -1: it fails
    long status = 1;      // which of the call's statuses is a failure
};

// The part behind the second colon; false where it is none.
bool parse_kind(const char* text, Injected* injected) {
    char* end = nullptr;
    if (std::strcmp(text, "hang") == 0) {
        injected->seconds = HUGE_VAL;
        return true;
    }
    if (std::strncmp(text, "status:", 7) == 0) {
        injected->status = std::strtol(text + 7, &end, 10);
        return injected->status >= 1 && !*end;
    }
    injected->seconds = std::strtod(text, &end);
    return injected->seconds >= 0 && end != text && !*end;
}

Injected parse(const char* text) {
    if (!text || !*text) return {};
    const char* colon = std::strchr(text, ':');
    Injected injected;
    injected.kernel = colon ? std::string(text, colon) : text;
    injected.call = colon ? std::atol(colon + 1) : 1;
    const char* kind = colon ? std::strchr(colon + 1, ':') : nullptr;
    if (injected.call < 1 || !find_kernel(injected.kernel) ||
        (kind && !parse_kind(kind + 1, &injected)))
        throw std::runtime_error("NNLUA_FAIL_KERNEL is '" + std::string(text) +
                                 "'; the name of a kernel and which call, like gemm:3, is needed, "
                                 "for a stall with :hang or :SECONDS behind");
    return injected;
}

Injected& injected_failure() {
    static Injected injected = parse(std::getenv("NNLUA_FAIL_KERNEL"));
    return injected;
}

std::atomic<long> calls{0};
thread_local long due = 0;  // the failure is the status asked for after so many

}  // namespace

void inject_failure(const char* text) {
    injected_failure() = parse(text);
    calls = 0;
}

void announce_call(const char* kernel) {
    const Injected& injected = injected_failure();
    const bool now = injected.call > 0 && injected.kernel == kernel && ++calls == injected.call;
    due = now && injected.seconds < 0 ? injected.status : 0;
    if (!now || injected.seconds < 0) return;
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - start).count() < injected.seconds)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

bool take_failure() { return due > 0 && --due == 0; }

}  // namespace nn
